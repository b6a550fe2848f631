#![deny(warnings)]

use farfield::prelude::*;

pub struct Log(Vec<u64>);

#[delegated]
impl Log {
    pub fn push(&mut self, n: u64) {
        self.0.push(n);
    }

    pub fn push_to(&self, context: &Context<'_>, other: LogClient) {
        other.via(context).push(self.0.len() as u64);
    }
}

fn main() {}
