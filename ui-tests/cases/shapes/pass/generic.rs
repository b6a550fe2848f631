use farfield::prelude::*;

/// Type and const parameters, bounds in both places, recursion.
#[remote]
pub struct Node<K: Word, V, const N: usize = 2>
where
    V: Word + PartialEq,
{
    pub key: K,
    values: [Atomic<V>; N],
    pub(crate) children: [Link<Node<K, V, N>>; N],
}

/// A parameter that occurs only in the struct's recursion.
#[remote]
struct Phantom<K: Word> {
    next: Link<Phantom<K>>,
}

/// A parameter that is itself remote.
#[remote]
struct Holder<T: farfield::Remote> {
    held: RemotePtr<T>,
    next: Link<T>,
}

#[farfield::main]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    let g = &ct.pin();
    let node = Node::<u32, bool>::new_in(ct, Node::init(7)).await?.write(ct).await?;
    assert_eq!(node.read(g).await?.values, [false, false]);
    let phantom = Phantom::<i8>::new_in(ct, Phantom::init()).await?.write(ct).await?;
    assert!(phantom.next().load(g).await?.is_null());
    let holder = Holder::new_in(ct, Holder::init(node).next(node)).await?.write(ct).await?;
    assert_eq!(Holder::attach(holder, ct).await?.held().key().read(g).await?, 7);
    Ok(())
}
