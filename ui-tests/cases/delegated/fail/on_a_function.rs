use farfield::prelude::*;

#[delegated]
fn add(counter: &mut u64, n: u64) {
    *counter += n;
}

fn main() {}
