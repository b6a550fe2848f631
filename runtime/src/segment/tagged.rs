//! `tagged_words!`: words with a tag in their low bits and a payload above, from one table.

use std::num::NonZeroU64;

use super::classes::Class;
use farfield_words::ThreadId;

/// A type of the bits above a tag.
pub(crate) trait Payload: Sized {
    fn to_bits(self) -> u64;
    fn from_bits(bits: u64) -> Option<Self>;
}

/// A count, of one at least.
impl Payload for u64 {
    fn to_bits(self) -> u64 {
        self
    }

    fn from_bits(bits: u64) -> Option<Self> {
        (bits > 0).then_some(bits)
    }
}

impl Payload for Class {
    fn to_bits(self) -> u64 {
        self.index() as u64
    }

    fn from_bits(bits: u64) -> Option<Self> {
        Self::from_index(bits as usize)
    }
}

impl Payload for ThreadId {
    fn to_bits(self) -> u64 {
        self.number().get()
    }

    fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(Self::new)
    }
}

/// Declares an enum with a word for each value. A row has a tag, a variant, the name and type of its payload if it has one, and the meaning.
macro_rules! tagged_words {
    (
        $(#[$attribute:meta])*
        $name:ident: $bits:literal tag bits {
            $($tag:literal => $variant:ident $(($payload:ident: $type:ty))? @ $meaning:literal,)+
        }
    ) => {
        $(#[$attribute])*
        ///
        #[doc = concat!("| low ", $bits, " bits | higher bits | meaning |")]
        #[doc = "|---|---|---|"]
        $(#[doc = concat!("| ", $tag, " | " $(, stringify!($payload))?, " | ", $meaning, " |")])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $(#[doc = $meaning] $variant $(($type))?,)+
        }

        impl $name {
            pub(crate) fn to_word(self) -> u64 {
                match self {
                    $(Self::$variant $(($payload))? => {
                        $tag $(| $crate::segment::tagged::Payload::to_bits($payload) << $bits)?
                    })+
                }
            }

            /// The value with this word, if there is one.
            pub(crate) fn from_word(word: u64) -> Option<Self> {
                let value = match word & ((1 << $bits) - 1) {
                    $($tag => Self::$variant $((
                        <$type as $crate::segment::tagged::Payload>::from_bits(word >> $bits)?
                    ))?,)+
                    _ => return None,
                };
                // Higher bits of a value without a payload are 0.
                (value.to_word() == word).then_some(value)
            }
        }
    };
}

pub(crate) use tagged_words;

#[cfg(test)]
mod tests {
    use super::*;

    super::tagged_words! {
        /// A sample.
        Sample: 4 tag bits {
            0 => Nothing @ "nothing",
            2 => Count(count: u64) @ "a count",
            3 => Of(class: Class) @ "a class",
        }
    }

    #[test]
    fn a_word_has_one_value_or_none() {
        let class = Class::from_index(5).unwrap();
        for (value, word) in [(Sample::Nothing, 0), (Sample::Count(7), 0x72), (Sample::Of(class), 0x53)] {
            assert_eq!((value.to_word(), Sample::from_word(word)), (word, Some(value)));
        }
        for word in [0x10, 1, 2, 4, u64::MAX, 0xff3] {
            assert_eq!(Sample::from_word(word), None, "{word:#x}");
        }
    }
}
