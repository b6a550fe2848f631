#[derive(Message)]
enum Change<T> {
    Clear,
    Push(T, u16),
    Replace { at: u64, r#in: Trust<Log> },
}
