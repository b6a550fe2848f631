#[delegated]
impl Counter {
    /// Adds to the counter.
    pub fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }

    fn forward(&self, context: &Context<'_>, log: Trust<Log>) {
        let _ = context.post(&log, self.0, Log::push);
    }

    pub(crate) fn new() -> Self {
        Self(0)
    }
}
