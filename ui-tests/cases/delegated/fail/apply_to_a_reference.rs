use farfield::prelude::*;

async fn add(ct: &ComputeThread, words: &Trust<Vec<String>>, word: &'static str) -> Result<()> {
    words.apply(ct, word, |words, word: &'static str| words.push(word.to_owned())).await
}

fn main() {}
