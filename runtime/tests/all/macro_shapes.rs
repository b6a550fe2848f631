//! `#[remote]` on unusual structs: they work, and names resolve as in the user's source.

use std::cell::Cell;

use farfield::prelude::*;
use farfield::{Remote, Result};

/// `Self` in every position of a type.
#[remote]
struct Tree<K: Word, const N: usize> {
    key: K,
    children: [Link<Self>; N],
    parent: RemotePtr<Self>,
    #[local(default = size_of::<Self>())]
    size: usize,
}

#[farfield::test]
async fn self_is_the_struct_itself(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let root = Tree::<u64, 2>::new_in(ct, Tree::init(1, RemotePtr::NULL)).await?.write(ct).await?;
    let leaf = Tree::new_in(ct.near(root), Tree::init(2, root)).await?;
    root.children().at(1).store(g, leaf).await?;
    let seen = root.read(g).await?;
    assert!(seen.children[0].is_null());
    assert_eq!(seen.children[1].read(g).await?.parent, root);
    assert_eq!(Tree::attach(root, ct).await?.size, size_of::<Tree<u64, 2>>());
    Ok(())
}

/// A parameter that occurs in the handle only.
#[remote]
struct Cached<T: Default>
where
    T: 'static,
{
    hits: Atomic<u64>,
    #[local]
    cache: T,
}

#[farfield::test]
async fn a_parameter_may_be_of_the_handle_only(ct: &ComputeThread) -> Result<()> {
    let ptr = Cached::<Vec<String>>::new_in(ct, Cached::init().hits(3)).await?.write(ct).await?;
    let mut handle = Cached::attach(ptr, ct).await?;
    handle.cache.push("here".to_owned());
    assert_eq!(handle.hits().load(ct).await?, 3);
    assert_eq!(ptr.read(&ct.pin()).await?.hits, 3);
    Ok(())
}

fn at() -> u64 {
    40
}
fn bytes() -> u64 {
    2
}

/// Fields named like variables of generated code, and a default that calls functions of such names.
#[remote]
struct Names {
    at: u64,
    bytes: u8,
    value: u32,
    out: u16,
    site: bool,
    ptr: u64,
    f: char,
    r#type: i8,
    #[local(default = at() + bytes())]
    sum: u64,
    #[local]
    read: Cell<u32>,
}

#[farfield::test]
async fn fields_may_have_the_names_of_generated_variables(ct: &ComputeThread) -> Result<()> {
    let init = Names::init(1, 2, 3, 4, true, 5, 'f', -6);
    let handle = Names::attach(Names::new_in(ct, init).await?.write(ct).await?, ct).await?;
    assert_eq!((handle.at(), handle.bytes(), handle.value(), handle.out()), (1, 2, 3, 4));
    assert_eq!((handle.site(), handle.ptr(), handle.f(), handle.r#type()), (true, 5, 'f', -6));
    assert_eq!((handle.sum, handle.read.get()), (42, 0));
    let seen = format!("{:?}", handle.this().read(&ct.pin()).await?);
    assert!(seen.ends_with("f: 'f', type: -6 }"), "{seen}");
    Ok(())
}

#[remote]
struct Inner {
    kind: u8,
    items: Tail<u32>,
}

#[remote]
struct Outer {
    id: u64,
    inner: Inner,
}

#[farfield::test]
async fn a_nested_struct_brings_its_tail(ct: &ComputeThread) -> Result<()> {
    let init = Outer::init(1, Inner::init(2, vec![10, 20, 30]));
    let outer = Outer::new_in(ct, init).await?;
    let before = ct.metrics();
    let ptr = outer.write(ct).await?;
    assert_eq!(
        (ct.metrics() - before).write_bytes as usize,
        Outer::SIZE + 3 * size_of::<u32>() + 4,
        "whole words"
    );
    let g = &ct.pin();
    let items = ptr.read(g).await?.inner.items;
    assert_eq!(items.read(g).await?, [10, 20, 30]);
    assert_eq!(ptr.inner().items().at(2).read(g).await?, 30);
    assert_eq!(Outer::attach(ptr, ct).await?.inner().items().len(), 3);
    // It was freed with its tail: an object of the same length reuses the block.
    ct.delete(ptr).await?;
    let again = Outer::init(1, Inner::init(2, vec![1, 2, 3]));
    assert_eq!(Outer::new_in(ct, again).await?.as_ptr(), ptr);
    Ok(())
}

/// A crate of a program that re-exports Farfield.
mod reexport {
    pub(crate) use farfield as far;
}

#[remote(align = 16, crate = reexport::far)]
struct Elsewhere {
    #[marks(a, b, c, d)]
    next: Link<Elsewhere>,
}

#[farfield::test(crate = reexport::far)]
async fn the_crate_may_be_re_exported(ct: &ComputeThread) -> reexport::far::Result<()> {
    let g = &ct.pin();
    let ptr = Elsewhere::new_in(ct, Elsewhere::init()).await?.write(ct).await?;
    let (next,) = fetch!(crate = reexport::far, g, ptr.{next}).await?;
    assert!(next.with_d().is_d() && !next.is_d());
    assert_eq!(next.with_d().marks(), 0b1000);
    Ok(())
}

/// One struct for each case; the macro sees the one that `cfg` selects.
#[remote]
#[cfg(target_endian = "little")]
struct Word64 {
    low: u32,
    high: u32,
}
#[remote]
#[cfg(target_endian = "big")]
struct Word64 {
    high: u32,
    low: u32,
}
#[cfg(any())]
#[remote]
struct Word64 {
    nowhere: String,
}

#[test]
fn a_struct_may_depend_on_the_build() {
    let offsets: Vec<_> = Word64::FIELDS.iter().map(|field| (field.name, field.offset)).collect();
    let expected = if cfg!(target_endian = "little") { ["low", "high"] } else { ["high", "low"] };
    assert_eq!(offsets, [(expected[0], 0), (expected[1], 4)]);
}
