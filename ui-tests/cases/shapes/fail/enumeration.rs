use farfield::prelude::*;

#[remote]
enum Shape {
    Round,
    Square,
}

fn main() {}
