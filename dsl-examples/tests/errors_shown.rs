//! Errors print as one line, for values with any characters.

use std::process::{Command, Output};

use farfield::prelude::*;
use farfield::{Error, error};

/// The README's program.
fn count(url: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_count")).arg(url).output().unwrap()
}

/// The line on stderr of a program that fails and prints nothing else.
fn line_of(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert_eq!(output.stdout, b"");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let line = said.strip_suffix('\n').unwrap_or_else(|| panic!("not one line: {said:?}"));
    assert!(!line.contains(char::is_control), "{line:?}");
    line.to_owned()
}

#[test]
fn a_main_that_returns_the_error_prints_its_line() {
    let output = count("local:");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let line = line_of(&count("moon:"), 1);
    assert!(
        line.starts_with("Error: cluster URL `moon:`: unknown fabric `moon`; this build has `local`"),
        "{line}"
    );
    assert_eq!(
        line_of(&count("local:size=64KiB,segments=70000"), 1),
        "Error: cluster URL `local:size=64KiB,segments=70000`: segments=70000 is not a number from 1 to 65535"
    );
}

#[test]
fn control_characters_of_a_url_are_escaped() {
    let line = line_of(&count("local:\u{1b}[31mred=1\nError: all is well\u{202e}"), 1);
    let url = "local:\\u{1b}[31mred=1\\nError: all is well\\u{202e}";
    let option = "\\u{1b}[31mred";
    assert!(
        line.starts_with(&format!("Error: cluster URL `{url}`: unknown option `{option}`;")),
        "in the URL, and where the message quotes its parts: {line}"
    );
    let hello = Command::new(env!("CARGO_BIN_EXE_hello")).env("FARFIELD_CLUSTER", "a\nb:\u{7}").output();
    assert!(
        line_of(&hello.unwrap(), 2).starts_with("error: cluster URL `a\\nb:\\u{7}`: unknown fabric `a\\nb`")
    );
    let intset = Command::new(env!("CARGO_BIN_EXE_intset")).args(["--cluster", "\u{1b}c:"]).output();
    assert!(line_of(&intset.unwrap(), 2).starts_with("error: cluster URL `\\u{1b}c:`"));
    // The parser itself removes escape sequences from unexpected arguments.
    let intset = Command::new(env!("CARGO_BIN_EXE_intset")).arg("\u{1b}[2J\u{9b}7mbad").output();
    assert!(line_of(&intset.unwrap(), 2).contains("bad"));
}

#[test]
fn control_characters_of_names_are_escaped() {
    let name = "a\u{1b}[2J\nb";
    Cluster::connect("local:")
        .unwrap()
        .run(1, async |ct| {
            let Err(missing) = ct.lookup::<farfield_examples::Counter>(name).await else {
                panic!("the root exists")
            };
            assert_eq!(missing.to_string(), "no root is named `a\\u{1b}[2J\\nb`");
            assert_eq!(format!("{missing:?}"), missing.to_string());
            let long = format!("{name}{}", "x".repeat(100));
            let invalid = ct.barrier(&long).await.unwrap_err();
            assert!(invalid.to_string().starts_with("the name `a\\u{1b}[2J\\nbxxx"), "{invalid}");
            // The value itself is not escaped.
            let Error::RootNotFound(missing) = missing else { panic!("{missing}") };
            let error::RootNotFound { root, .. } = *missing;
            assert_eq!(&*root, name);
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_alternate_form_shows_the_structure() {
    let error = Cluster::connect("moon:").unwrap_err();
    let shown = format!("{error:#?}");
    assert!(shown.starts_with("InvalidUrl(\n    InvalidUrl {\n        url: \"moon:\""), "{shown}");
    let own = Error::other("the list\nis not sorted");
    assert_eq!(format!("{own:?}"), "the list\nis not sorted", "a program's own message is not escaped");
}
