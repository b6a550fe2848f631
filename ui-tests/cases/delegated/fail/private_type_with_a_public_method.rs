mod counters {
    use farfield::prelude::*;

    struct Counter(u64);

    #[delegated]
    impl Counter {
        pub fn get(&self) -> u64 {
            self.0
        }
    }
}

fn main() {}
