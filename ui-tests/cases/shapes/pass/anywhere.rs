use farfield::prelude::*;

macro_rules! pair {
    ($name:ident, $ty:ty) => {
        #[remote]
        pub(crate) struct $name {
            first: $ty,
            second: Atomic<u64>,
        }
    };
}
pair!(Generated, [u16; 4]);

type Bits = u64;

#[farfield::main]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    /// In a function, with a raw name and an alias.
    #[remote]
    struct Inside {
        r#type: Bits,
        r#move: Atomic<Bits>,
    }
    let g = &ct.pin();
    let inside = Inside::new_in(ct, Inside::init(5).r#move(6)).await?.write(ct).await?;
    let seen = inside.read(g).await?;
    assert_eq!((seen.r#type, seen.r#move), (5, 6));
    let pair = Generated::new_in(ct, Generated::init([1, 2, 3, 4])).await?.write(ct).await?;
    assert_eq!(fetch!(g, pair.{first, second}).await?, ([1, 2, 3, 4], 0));
    Ok(())
}
