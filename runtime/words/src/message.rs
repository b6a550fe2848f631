//! `Message`: values that travel from thread to thread, word by word.
//!
//! Unlike a [`Pod`](crate::Pod), a message may have any length, and may own something: a `String`, or a handle that is counted. Writing one consumes it.
//! A value that was written must be read exactly once, or what it owns is lost.

use std::any::Any;

use crate::{WORD_BYTES, Word, fingerprint};

/// A value that can be sent to another compute thread, of this process or of another one.
///
/// Implemented for each [`Word`], `String`, tuples of up to six messages, arrays, `Vec`, `Option` and `Result` of messages. `#[derive(Message)]` implements
/// it for structs and enums of messages. References and `usize`, whose size differs between machines, are no messages.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent to another thread's process",
    label = "not a message",
    note = "messages are words (integers of fixed width, floats, `bool`, `char`, `RemotePtr<T>`, types with `#[derive(Word)]`), `String`, `Trust<T>`, tuples, arrays, `Vec`, `Option` and `Result` of messages, types with `#[derive(Message)]`, and `Serde<T>` of whatever serde carries (feature `serde`)"
)]
pub trait Message: Sized + 'static {
    /// Differs from that of every type that is written otherwise.
    const FINGERPRINT: u64;

    /// Writes the value.
    fn write(self, to: &mut Writer<'_>);

    /// Reads a value. `None` if the words encode none.
    fn read(from: &mut Reader<'_>) -> Option<Self>;

    /// Writes the elements of a list.
    #[doc(hidden)]
    fn write_all(values: Vec<Self>, to: &mut Writer<'_>) {
        for value in values {
            value.write(to);
        }
    }

    /// Reads the elements of a list.
    #[doc(hidden)]
    fn read_all(count: usize, from: &mut Reader<'_>) -> Option<Vec<Self>> {
        // Not reserved by an unchecked number, of elements that may have no words.
        if count > MOST_ELEMENTS {
            return None;
        }
        (0..count).map(|_| Self::read(from)).collect()
    }
}

/// The most elements of a list whose elements are not words.
const MOST_ELEMENTS: usize = 1 << 24;

/// The words of a message under construction.
pub struct Writer<'a> {
    words: &'a mut Vec<u64>,
    context: &'a dyn Any,
}

/// The words of a message that have not been read yet.
pub struct Reader<'a> {
    words: &'a [u64],
    context: &'a dyn Any,
}

impl<'a> Writer<'a> {
    /// Makes a writer that appends to `words`. `context` is what messages of the layers above need to know of their way.
    pub fn new(words: &'a mut Vec<u64>, context: &'a dyn Any) -> Self {
        Self { words, context }
    }

    /// Appends a word.
    #[inline]
    pub fn put(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Appends bytes, filled with zeros to a multiple of a word.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let start = self.words.len();
        self.words.resize(start + bytes.len().div_ceil(WORD_BYTES), 0);
        bytemuck::cast_slice_mut(&mut self.words[start..])[..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns what messages know of their way.
    pub fn context(&self) -> &'a dyn Any {
        self.context
    }
}

impl<'a> Reader<'a> {
    /// Makes a reader of `words`.
    pub fn new(words: &'a [u64], context: &'a dyn Any) -> Self {
        Self { words, context }
    }

    /// Takes the next word.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    /// Takes the words of so many bytes.
    pub fn take_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.words.split_at_checked(count.div_ceil(WORD_BYTES))?;
        self.words = rest;
        bytemuck::cast_slice(taken).get(..count)
    }

    /// Returns whether all words have been read.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns what messages know of their way.
    pub fn context(&self) -> &'a dyn Any {
        self.context
    }
}

// Errors about other types speak of messages, not of words.
#[diagnostic::do_not_recommend]
impl<T: Word> Message for T {
    const FINGERPRINT: u64 = fingerprint::wrap("message", T::FINGERPRINT);

    #[inline]
    fn write(self, to: &mut Writer<'_>) {
        to.put(self.to_word());
    }
    #[inline]
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        T::from_word(from.take()?)
    }

    /// Packed: a `Vec<u8>` takes a byte for each element.
    fn write_all(values: Vec<Self>, to: &mut Writer<'_>) {
        let mut bytes = vec![0; values.len() * size_of::<T>()];
        if size_of::<T>() > 0 {
            bytes.chunks_exact_mut(size_of::<T>()).zip(values).for_each(|(bytes, value)| value.encode(bytes));
        }
        to.put_bytes(&bytes);
    }
    fn read_all(count: usize, from: &mut Reader<'_>) -> Option<Vec<Self>> {
        let bytes = from.take_bytes(count.checked_mul(size_of::<T>())?)?;
        if size_of::<T>() == 0 {
            return None;
        }
        bytes.chunks_exact(size_of::<T>()).map(T::decode).collect()
    }
}

impl Message for String {
    const FINGERPRINT: u64 = fingerprint::name("message of text");

    fn write(self, to: &mut Writer<'_>) {
        to.put(self.len() as u64);
        to.put_bytes(self.as_bytes());
    }
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let length = usize::try_from(from.take()?).ok()?;
        String::from_utf8(from.take_bytes(length)?.to_vec()).ok()
    }
}

impl<T: Message> Message for Vec<T> {
    const FINGERPRINT: u64 = fingerprint::wrap("message of a list", T::FINGERPRINT);

    fn write(self, to: &mut Writer<'_>) {
        to.put(self.len() as u64);
        T::write_all(self, to);
    }
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let count = usize::try_from(from.take()?).ok()?;
        T::read_all(count, from)
    }
}

impl<T: Message, const N: usize> Message for [T; N] {
    const FINGERPRINT: u64 = fingerprint::array(fingerprint::wrap("message", T::FINGERPRINT), N);

    fn write(self, to: &mut Writer<'_>) {
        for value in self {
            value.write(to);
        }
    }
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        crate::try_array(|_| T::read(from).ok_or(())).ok()
    }
}

impl<T: Message> Message for Option<T> {
    const FINGERPRINT: u64 = fingerprint::wrap("message of an option", T::FINGERPRINT);

    fn write(self, to: &mut Writer<'_>) {
        to.put(u64::from(self.is_some()));
        if let Some(value) = self {
            value.write(to);
        }
    }
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        match from.take()? {
            0 => Some(None),
            1 => T::read(from).map(Some),
            _ => None,
        }
    }
}

impl<T: Message, E: Message> Message for Result<T, E> {
    const FINGERPRINT: u64 =
        fingerprint::number(fingerprint::wrap("message of a result", T::FINGERPRINT), E::FINGERPRINT);

    fn write(self, to: &mut Writer<'_>) {
        to.put(u64::from(self.is_ok()));
        match self {
            Ok(value) => value.write(to),
            Err(error) => error.write(to),
        }
    }
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        match from.take()? {
            0 => E::read(from).map(Err),
            1 => T::read(from).map(Ok),
            _ => None,
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Message),*> Message for ($($name,)*) {
            const FINGERPRINT: u64 = {
                #[allow(unused_mut)]
                let mut hash = fingerprint::name("message of a tuple");
                $(hash = fingerprint::number(hash, $name::FINGERPRINT);)*
                hash
            };
            #[allow(non_snake_case, unused_variables)]
            #[inline]
            fn write(self, to: &mut Writer<'_>) {
                let ($($name,)*) = self;
                $($name.write(to);)*
            }
            #[allow(unused_variables)]
            #[inline]
            fn read(from: &mut Reader<'_>) -> Option<Self> {
                Some(($($name::read(from)?,)*))
            }
        }
    )*};
}
tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<T: Message + Clone + PartialEq + std::fmt::Debug>(value: T) {
        let mut words = Vec::new();
        value.clone().write(&mut Writer::new(&mut words, &()));
        let mut reader = Reader::new(&words, &());
        assert_eq!(T::read(&mut reader), Some(value));
        assert!(reader.is_empty());
        // Each shorter message encodes no value, and none panics.
        for length in 0..words.len() {
            assert_eq!(T::read(&mut Reader::new(&words[..length], &())), None);
        }
    }

    #[test]
    fn values_survive_and_shorter_words_encode_none() {
        kept(7_u64);
        kept((1_u8, -1_i64, 'x', true));
        kept("Ada".to_owned());
        kept(vec![1_u8, 2, 3]);
        kept(vec![Some("a".to_owned()), None]);
        kept([Ok::<u32, String>(1), Err("no".to_owned())]);
        kept((vec![0.5_f64], 2_u16));
    }

    #[test]
    fn bytes_are_packed() {
        let mut words = Vec::new();
        vec![0_u8; 17].write(&mut Writer::new(&mut words, &()));
        assert_eq!(words.len(), 1 + 3);
    }

    #[test]
    fn words_of_no_value_are_refused() {
        assert_eq!(<Option<u64>>::read(&mut Reader::new(&[2, 0], &())), None);
        assert_eq!(<Vec<u64>>::read(&mut Reader::new(&[u64::MAX], &())), None);
        assert_eq!(<Vec<()>>::read(&mut Reader::new(&[u64::MAX], &())), None);
        assert_eq!(bool::read(&mut Reader::new(&[2], &())), None);
        assert_eq!(<Vec<bool>>::read(&mut Reader::new(&[1, 2], &())), None);
        assert_eq!(String::read(&mut Reader::new(&[1, 0xff], &())), None);
    }

    #[test]
    fn fingerprints_differ() {
        let all = [
            <u64 as Message>::FINGERPRINT,
            <i64 as Message>::FINGERPRINT,
            <(u64,)>::FINGERPRINT,
            <(u64, u64)>::FINGERPRINT,
            <[u64; 2] as Message>::FINGERPRINT,
            <Vec<u64>>::FINGERPRINT,
            <Option<u64>>::FINGERPRINT,
            String::FINGERPRINT,
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
    }
}
