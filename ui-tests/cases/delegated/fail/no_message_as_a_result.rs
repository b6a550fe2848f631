use farfield::prelude::*;

struct Local(u64);

struct Counter(u64);

#[delegated]
impl Counter {
    fn get(&self) -> Local {
        Local(self.0)
    }
}

fn main() {}
