use farfield::prelude::*;

#[derive(Message)]
struct Line {
    number: u64,
    text: &'static str,
}

fn its_use_is_no_error(line: Line) -> impl farfield::Message {
    vec![line]
}

fn main() {}
