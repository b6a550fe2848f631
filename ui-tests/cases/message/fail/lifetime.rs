use farfield::prelude::*;

#[derive(Message)]
struct Line<'a> {
    number: u64,
    text: Text<'a>,
}

type Text<'a> = &'a str;

fn main() {}
