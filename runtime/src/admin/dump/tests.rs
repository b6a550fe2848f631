//! Dumps by invalid descriptions.

use super::*;
use crate::prelude::*;

#[remote]
struct Words {
    count: u64,
    second: u64,
}

/// Counts the values in an object.
fn values(dumped: &Dumped) -> usize {
    fn count(value: &DumpedValue) -> usize {
        1 + match value {
            DumpedValue::Pointer { target: DumpedTarget::Object(target), .. } => values(target),
            DumpedValue::List { values, .. } => values.iter().map(count).sum(),
            DumpedValue::Struct(fields) => fields.iter().map(|(_, value)| count(value)).sum(),
            _ => 0,
        }
    }
    1 + dumped.fields.iter().map(|(_, value)| count(value)).sum::<usize>()
}

#[test]
fn a_dump_with_any_description_ends_within_its_limit() {
    let run = Cluster::connect("local:size=1MiB").unwrap().run(1, async |ct| {
        let at = Words::new_in(ct, Words::init(u64::MAX, 7)).await?.write(ct).await?.address();
        for (fields, shown) in [
            ("\ta\t0\tstruct\tT", "Omitted"),
            ("\ta\t0\tstruct\tT\n\tb\t0\tstruct\tT", "Omitted"),
            ("\ta\t0\tarray\t18446744073709551615\t0\tplain\tu64\t8", "omitted: 1844674407370955"),
            ("\ta\t0\tarray\t9\t8\tplain\tu64\t8", "omitted: 7"),
            ("\ta\t06\ttail\t8\t8\tlock", "omitted: "),
            ("\ta\t0\tarray\t99999999\t0\tstruct\tT", "omitted: 9999"),
            ("\ta\t0\ttail\t8\t8\tplain\tu64\t8", "omitted: 18446744073709551615"),
            ("\ta\t8\ttail\t0\t18446744073709551615\tlock", "omitted: 7"),
            // Elements that are nested one level too deep.
            (
                "\tb\t0\tstruct\tU\nU\t16\n\ta\t0\tarray\t18446744073709551615\t0\tstruct\tU",
                "omitted: 18446744073709550",
            ),
            ("\ta\t18446744073709551608\tlock", "Omitted"),
            ("\ta\t0\tplain\tu64\t18446744073709551615", "Omitted"),
            ("\ta\t0\tplain\tu64\t3", "\"ffffff\""),
            ("\ta\t12\tlock", "Omitted"),
            ("\ta\t0\tlink\tT", "target: NotShown"),
            ("\ta\t8\tplain\tu64\t8", "\"7\""),
        ] {
            let layouts = Layouts::parse(&format!("T\t16\n{fields}")).unwrap();
            let dumped = ct.dump_described(&layouts, at, MAX_LINKS, 1000).await?.unwrap();
            // Beside each shown value there may be one for the omission of the rest.
            assert!(values(&dumped) <= 2000, "{fields}: {}", values(&dumped));
            assert!(format!("{dumped:?}").contains(shown), "{fields}: {dumped:?}");
        }
        Ok(())
    });
    run.unwrap();
}

/// A list of objects that contain the next link at their deepest level: traversing and dropping the result is recursion.
#[test]
fn the_depth_of_a_result_is_bounded() {
    use std::fmt::Write;
    let mut text = String::new();
    for level in 0..60 {
        let _ = writeln!(text, "T{level}\t16\n\tin\t0\tstruct\tT{}", level + 1);
    }
    text.push_str("T60\t16\n\tnext\t0\tlink\tT0\n");
    let layouts = Layouts::parse(&text).unwrap();
    let run = Cluster::connect("local:size=1MiB").unwrap().run(1, async |ct| {
        let mut next = 0;
        for _ in 0..1000 {
            next = Words::new_in(ct, Words::init(next, 0)).await?.write(ct).await?.address().bits();
        }
        let at = Address::from_bits(next);
        let dumped = ct.dump_described(&layouts, at, MAX_LINKS, 1_000_000).await?.unwrap();
        // Some 33 objects of 61 levels.
        assert!((2000..2200).contains(&values(&dumped)), "{}", values(&dumped));
        Ok(())
    });
    run.unwrap();
}

#[test]
fn bytes_are_text_only_if_they_are_printable() {
    for (bytes, shown) in [
        (&b"abc\0\0"[..], Some("abc")),
        (b"a\tb\r\n", Some("a\tb\r\n")),
        ("größe".as_bytes(), Some("größe")),
        (b"", None),
        (b"\0\0", None),
        (b"a\0b", None),
        (b"\x1b[m", None),
        (b"\xff\xfe", None),
    ] {
        assert_eq!(text(bytes).as_deref(), shown);
    }
}
