//! `records!`: the layout of the library's words, from one table.
//!
//! A record is a sequence of words without gaps. Its table has a row for each field: its name, its type (`u64`, another record, or an array of
//! these) and its meaning. From the table come
//! - a struct with these fields, which documents them. The compiler computes the offsets, by the C rule;
//! - a function for the address of each field, a constant offset from the place of the record; of an array, the address of an element;
//! - [`Layout`], which names the word at an offset in messages and traces, and writes the table of bytes that [`control`](super::control) begins with;
//! - assertions at compile time: the size that the table declares, the alignment, and that the fields follow each other without gaps.
//!
//! The place of a record is one of
//! - `[in each segment]`: at the front of each. The functions take the segment's number;
//! - `[in segment 0, at Record.field]`: inside another record, which is at the front of segment 0. The functions have no parameter;
//! - `[anywhere]`: the functions take the record's address, and are the struct's own;
//! - `[anywhere, as a value]`: likewise, and the struct is converted from words and to words.

use farfield_words::WORD_BYTES;

/// The layout of a record.
#[derive(Debug)]
pub(crate) struct Layout {
    #[cfg_attr(not(test), allow(dead_code))] // for the documented table
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) align: usize,
    pub(crate) rows: &'static [Row],
}

/// A field of a record.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The offset in the record, in bytes.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// The number of elements of an array.
    pub(crate) elements: Option<usize>,
    /// The layout of the record, or of the records in the array.
    pub(crate) record: Option<&'static Layout>,
    #[cfg_attr(not(test), allow(dead_code))] // for the documented table
    pub(crate) meaning: &'static str,
}

impl Layout {
    /// Checks the assumptions of the offsets, at compile time.
    ///
    /// # Panics
    /// If the size is not `bytes`, if the record is not aligned as a word, or if its fields do not fill it in the order of the table.
    pub(crate) const fn check(&self, bytes: usize) {
        assert!(self.bytes == bytes, "a record has another size than its table declares");
        assert!(self.align == WORD_BYTES, "a record is aligned as a word");
        let (mut index, mut end) = (0, 0);
        while index < self.rows.len() {
            let row = &self.rows[index];
            assert!(row.start == end, "the fields of a record follow each other");
            end = row.start + row.bytes;
            index += 1;
        }
        assert!(end == bytes, "the fields of a record fill it");
    }

    /// The name of the word at an offset: `sweeper`, `epoch slot[3]`, `member[3].state`.
    pub(crate) fn word_name(&self, offset: usize) -> Option<String> {
        let row = self.rows.iter().find(|row| (row.start..row.start + row.bytes).contains(&offset))?;
        let (mut name, mut within) = (row.name.replace('_', " "), offset - row.start);
        if let Some(elements) = row.elements {
            let bytes = row.bytes / elements;
            name = format!("{name}[{}]", within / bytes);
            within %= bytes;
        }
        match (row.record, row.elements) {
            (None, _) => Some(name),
            (Some(record), None) => record.word_name(within),
            (Some(record), Some(_)) => Some(format!("{name}.{}", record.word_name(within)?)),
        }
    }

    /// The table of the record's bytes, in Markdown.
    #[cfg(test)]
    pub(crate) fn to_markdown(&self) -> String {
        let row = |row: &Row| {
            let kind = match (row.record, row.elements) {
                (None, None) => "a word".to_owned(),
                (None, Some(count)) => format!("{count} words"),
                (Some(record), None) => format!("`{}`", record.name),
                (Some(record), Some(count)) => format!("{count} × `{}`", record.name),
            };
            let (name, start, end) = (row.name, row.start, row.start + row.bytes);
            format!("| {start}..{end} | `{name}` | {kind} | {} |\n", row.meaning)
        };
        let rows: String = self.rows.iter().map(row).collect();
        format!(
            "`{}`, {} bytes:\n\n| bytes | field | of | meaning |\n|---|---|---|---|\n{rows}",
            self.name, self.bytes
        )
    }
}

/// A type that a field can have.
pub(crate) trait Part {
    const ELEMENTS: Option<usize> = None;
    const RECORD: Option<&'static Layout> = None;
}

impl Part for u64 {}

impl<T: Part, const N: usize> Part for [T; N] {
    const ELEMENTS: Option<usize> = Some(N);
    const RECORD: Option<&'static Layout> = T::RECORD;
}

/// A field that is read and written with its record.
pub(crate) trait Words {
    fn from_words(words: &[u64]) -> Self;
    fn put(&self, words: &mut [u64]);
}

impl Words for u64 {
    fn from_words(words: &[u64]) -> Self {
        words[0]
    }

    fn put(&self, words: &mut [u64]) {
        words[0] = *self;
    }
}

impl<const N: usize> Words for [u64; N] {
    fn from_words(words: &[u64]) -> Self {
        std::array::from_fn(|index| words[index])
    }

    fn put(&self, words: &mut [u64]) {
        words[..N].copy_from_slice(self);
    }
}

/// Declares records. See the [module](self).
macro_rules! records {
    ($(
        $(#[$attribute:meta])*
        $record:ident $place:tt: $bytes:literal bytes {
            $($field:ident: $type:tt @ $meaning:literal,)+
        }
    )+) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            #[allow(dead_code)] // a table has all words, also those that no code reads by their name
            pub(crate) struct $record {
                $(#[doc = $meaning] pub(crate) $field: $type,)+
            }

            impl $record {
                pub(crate) const LAYOUT: &'static $crate::segment::records::Layout = &$crate::segment::records::Layout {
                    name: stringify!($record),
                    bytes: size_of::<Self>(),
                    align: align_of::<Self>(),
                    rows: &[$($crate::segment::records::Row {
                        name: stringify!($field),
                        start: ::memoffset::offset_of!($record, $field),
                        bytes: size_of::<$type>(),
                        elements: <$type as $crate::segment::records::Part>::ELEMENTS,
                        record: <$type as $crate::segment::records::Part>::RECORD,
                        meaning: $meaning,
                    },)+],
                };
            }

            const _: () = $record::LAYOUT.check($bytes);

            impl $crate::segment::records::Part for $record {
                const RECORD: Option<&'static $crate::segment::records::Layout> = Some(Self::LAYOUT);
            }

            $crate::segment::records::place! { $place $record $($field: $type @ $meaning,)+ }
        )+

        /// All tables, in their order.
        #[cfg(test)]
        const TABLES: &[&$crate::segment::records::Layout] = &[$($record::LAYOUT),+];
    };
}

/// The address functions of a record's fields, by the record's place.
macro_rules! place {
    ([in each segment] $record:ident $($field:ident: $type:tt @ $meaning:literal,)+) => {
        $($crate::segment::records::address! {
            $field: $type @ $meaning, (segment: u16) =>
            ::farfield_words::Address::new(segment, ::memoffset::offset_of!($record, $field) as u64)
        })+
    };
    ([in segment 0] $record:ident $($field:ident: $type:tt @ $meaning:literal,)+) => {
        $($crate::segment::records::address! {
            $field: $type @ $meaning, () =>
            ::farfield_words::Address::new(0, ::memoffset::offset_of!($record, $field) as u64)
        })+
    };
    ([in segment 0, at $outer:ident.$inner:ident] $record:ident $($field:ident: $type:tt @ $meaning:literal,)+) => {
        $($crate::segment::records::address! {
            $field: $type @ $meaning, () =>
            ::farfield_words::Address::new(
                0,
                (::memoffset::offset_of!($outer, $inner) + ::memoffset::offset_of!($record, $field)) as u64,
            )
        })+
    };
    ([anywhere] $record:ident $($field:ident: $type:tt @ $meaning:literal,)+) => {
        #[allow(dead_code)] // as in the struct
        impl $record {
            pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
            pub(crate) const WORDS: usize = size_of::<Self>() / ::farfield_words::WORD_BYTES;

            $($crate::segment::records::address! {
                $field: $type @ $meaning, (record: ::farfield_words::Address) =>
                record.add(::memoffset::offset_of!($record, $field) as u64)
            })+
        }
    };
    ([anywhere, as a value] $record:ident $($field:ident: $type:tt @ $meaning:literal,)+) => {
        $crate::segment::records::place! { [anywhere] $record $($field: $type @ $meaning,)+ }

        #[allow(dead_code)] // some are only read, some only written
        impl $record {
            /// The record of words that were read.
            pub(crate) fn from_words(words: &[u64]) -> Self {
                Self {$(
                    $field: $crate::segment::records::Words::from_words(
                        &words[::memoffset::offset_of!($record, $field) / ::farfield_words::WORD_BYTES..],
                    ),
                )+}
            }

            /// The words of the record.
            pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
                let mut words = [0; Self::WORDS];
                $($crate::segment::records::Words::put(
                    &self.$field,
                    &mut words[::memoffset::offset_of!($record, $field) / ::farfield_words::WORD_BYTES..],
                );)+
                words
            }
        }
    };
}

/// The function for the address of a field, or of an element of an array.
macro_rules! address {
    ($field:ident: [$element:ty; $count:expr] @ $meaning:literal, ($($base:ident: $of:ty)?) => $start:expr) => {
        #[doc = $meaning]
        #[inline]
        #[allow(dead_code)] // as in the struct
        pub(crate) const fn $field($($base: $of,)? index: usize) -> ::farfield_words::Address {
            debug_assert!(index <= $count, "an array has not so many elements");
            $start.add((index * size_of::<$element>()) as u64)
        }
    };
    ($field:ident: $type:ident @ $meaning:literal, ($($base:ident: $of:ty)?) => $start:expr) => {
        #[doc = $meaning]
        #[inline]
        #[allow(dead_code)] // as in the struct
        pub(crate) const fn $field($($base: $of)?) -> ::farfield_words::Address {
            $start
        }
    };
}

pub(crate) use {address, place, records};

#[cfg(test)]
mod tests {
    use super::*;

    super::records! {
        /// A record with each type of field.
        Sample [anywhere]: 48 bytes {
            first_word: u64 @ "a word",
            some: [u64; 2] @ "two words",
            one: Element @ "a record",
            two: [Element; 2] @ "two records",
        }

        /// A record that is read whole.
        Element [anywhere, as a value]: 8 bytes {
            only: u64 @ "its word",
        }

        /// Words and arrays that are read whole.
        Value [anywhere, as a value]: 32 bytes {
            before: u64 @ "a word",
            array: [u64; 2] @ "two words",
            after: u64 @ "a word",
        }
    }

    #[test]
    fn fields_have_addresses_and_words_have_names() {
        let at = farfield_words::Address::new(3, 4096);
        assert_eq!((Sample::BYTES, Sample::WORDS, TABLES.len()), (48, 6, 3));
        assert_eq!(Sample::first_word(at), at);
        assert_eq!(Sample::some(at, 1), at.add(16));
        assert_eq!(Element::only(Sample::two(at, 1)), at.add(40));
        let names = (0..7).map(|word| Sample::LAYOUT.word_name(word * 8));
        let expected = ["first word", "some[0]", "some[1]", "only", "two[0].only", "two[1].only"];
        assert!(names.eq(expected.into_iter().map(|name| Some(name.to_owned())).chain([None])));
    }

    #[test]
    fn a_value_survives_encoding() {
        let value = Value { before: 1, array: [2, 3], after: 4 };
        assert_eq!(value.to_words(), [1, 2, 3, 4]);
        assert_eq!(Value::from_words(&[1, 2, 3, 4]).to_words(), [1, 2, 3, 4]);
    }

    #[test]
    fn the_table_of_bytes_is_that_of_the_rows() {
        assert_eq!(
            Sample::LAYOUT.to_markdown(),
            "`Sample`, 48 bytes:\n\n| bytes | field | of | meaning |\n|---|---|---|---|\n\
             | 0..8 | `first_word` | a word | a word |\n\
             | 8..24 | `some` | 2 words | two words |\n\
             | 24..32 | `one` | `Element` | a record |\n\
             | 32..48 | `two` | 2 × `Element` | two records |\n"
        );
    }

    /// The same check is made of each record at compile time.
    #[test]
    fn a_wrong_size_offset_or_alignment_is_found() {
        const WORD: Row =
            Row { name: "word", start: 0, bytes: 8, elements: None, record: None, meaning: "a word" };
        const SOUND: Layout =
            Layout { name: "planted", bytes: 16, align: 8, rows: &[WORD, Row { start: 8, ..WORD }] };
        let passes = |layout: Layout| std::panic::catch_unwind(|| layout.check(16)).is_ok();
        assert!(passes(SOUND));
        assert!(!passes(Layout { bytes: 24, ..SOUND }), "a wrong size");
        assert!(!passes(Layout { align: 4, ..SOUND }), "a wrong alignment");
        for rows in [
            &[WORD][..],
            &[WORD, Row { start: 0, ..WORD }],
            &[WORD, Row { start: 16, ..WORD }],
            &[Row { start: 8, ..WORD }, WORD],
            &[WORD, Row { start: 8, bytes: 4, ..WORD }],
        ] {
            // Leaked, since layouts are constants elsewhere.
            let rows = Box::leak(rows.iter().map(|row| Row { ..*row }).collect::<Box<[Row]>>());
            assert!(!passes(Layout { rows, ..SOUND }), "{rows:?}");
        }
    }
}
