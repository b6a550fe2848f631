use farfield::prelude::*;

#[derive(Message)]
struct Line<'a> {
    number: u64,
    text: &'a str,
}

fn main() {}
