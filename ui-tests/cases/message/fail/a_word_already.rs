use farfield::prelude::*;

#[derive(Clone, Copy, Debug, Word, Message)]
struct Metres(u32);

fn main() {}
