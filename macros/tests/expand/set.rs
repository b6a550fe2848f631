/// A set, and what this thread knows of it.
#[remote]
pub(crate) struct Set {
    head: RemotePtr<Node<u64>>,
    size: Atomic<u64>,
    /// How often this thread began anew.
    #[local]
    restarts: Cell<u64>,
    #[local(default = 7)]
    pub limit: u32,
}
