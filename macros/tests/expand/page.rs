/// A page of records, as long as its writer asks for.
#[remote(align = 64)]
struct Page<const N: usize> {
    header: Header,
    counts: [Atomic<u32>; N],
    records: Tail<u16>,
}
