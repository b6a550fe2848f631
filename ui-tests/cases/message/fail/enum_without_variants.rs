use farfield::prelude::*;

#[derive(Message)]
enum Never {}

fn main() {}
