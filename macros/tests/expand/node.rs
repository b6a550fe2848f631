/// A node of a sorted list.
#[remote]
pub struct Node<K: Word> {
    /// Orders the nodes.
    pub key: K,
    #[marks(deleted)]
    next: Link<Node<K>>,
    lock: Lock,
}
