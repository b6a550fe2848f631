use farfield::prelude::*;

#[derive(Clone, Copy, Debug, Word)]
enum Colour {
    Red,
    Green,
}

fn main() {}
