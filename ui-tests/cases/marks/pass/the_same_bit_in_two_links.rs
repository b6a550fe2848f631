use farfield::prelude::*;

#[remote]
struct Tree {
    #[marks(flag, tag)]
    left: Link<Tree>,
    #[marks(flag, tag)]
    right: Link<Tree>,
}

#[farfield::main]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    let g = &ct.pin();
    let tree = Tree::new_in(ct, Tree::init()).await?.write(ct).await?;
    tree.left().store(g, Shared::<Tree>::NULL.as_marked::<TreeMarked>().with_tag()).await?;
    assert!(tree.left().load(g).await?.is_tag() && !tree.right().load(g).await?.is_tag());
    Ok(())
}
