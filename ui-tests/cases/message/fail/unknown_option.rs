use farfield::prelude::*;

#[derive(Message)]
#[message(name = "Point")]
struct Position(u32, u32);

fn main() {}
