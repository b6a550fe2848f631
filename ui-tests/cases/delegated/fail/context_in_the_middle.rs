use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn add(&mut self, n: u64, context: &Context<'_>) {
        self.0 += n + context.caller().number().get();
    }
}

fn main() {}
