//! Tests of the messages of rejections: each mistake has one message, in these words, and hides no other. (`ui-tests` has the
//! compiler's output, with the positions.)

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::{Item, ItemStruct, LitStr};

/// The items of the expansion of `#[remote(options)] item`.
fn expand(options: &str, item: &str) -> Vec<Item> {
    let [options, item]: [TokenStream; 2] =
        [options, item].map(|text| text.parse().expect("a case is tokens"));
    syn::parse2::<syn::File>(crate::expand::remote(options, item)).expect("the generated code is Rust").items
}

/// The error messages and the structs of an expansion.
fn outcome(options: &str, item: &str) -> (Vec<String>, Vec<ItemStruct>) {
    let (structs, others): (Vec<Item>, Vec<Item>) =
        expand(options, item).into_iter().partition(|item| matches!(item, Item::Struct(_)));
    let structs = structs.into_iter().filter_map(|item| match item {
        Item::Struct(item) => Some(item),
        _ => None,
    });
    (errors(others), structs.collect())
}

/// The error messages in an expansion.
fn errors(expansion: Vec<Item>) -> Vec<String> {
    let mut messages = Vec::new();
    for item in expansion {
        if let Item::Macro(item) = item
            && item.mac.path.segments.last().is_some_and(|last| last.ident == "compile_error")
        {
            let message = <LitStr as syn::parse::Parse>::parse.parse2(item.mac.tokens);
            messages.push(message.expect("an error has a message").value());
        }
    }
    messages
}

/// The error messages for a struct with these fields. Its five types must be generated all the same.
fn about_fields(fields: &str) -> Vec<String> {
    let (messages, structs) = outcome("", &format!("struct Node<K: Word, const n: usize> {{ {fields} }}"));
    assert_eq!(structs.len(), 5, "handle, layout, accessors, initial values and snapshot of {fields}");
    messages
}

#[track_caller]
fn check(fields: &str, expected: &[&str]) {
    assert_eq!(about_fields(fields), expected, "{fields}");
}

#[test]
fn a_valid_struct_has_no_message() {
    check(
        "key: K, next: Link<Self>, more: [[Atomic<u32>; 2]; n], #[local] read: Cell<u64>, rest: Tail<u8>",
        &[],
    );
}

#[test]
fn each_refused_type_names_its_replacement() {
    let code = "data is distributed, code is replicated; store a number that identifies it";
    let pointer = "use `RemotePtr<T>`, or `Link<T>` if it changes";
    let text = "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`";
    for (ty, what, instead) in [
        ("String", "`String`", text),
        ("std::string::String", "`String`", text),
        ("[[String; 2]; 3]", "`String`", text),
        ("Versioned<String>", "`String`", text),
        ("str", "`str`", text),
        ("Vec<u8>", "`Vec`", "use `[T; N]` for a fixed number of elements, or a last field `Tail<T>`"),
        ("Option<u8>", "`Option`", "use a `Link<T>`, which may be null, or reserve a value for `None`"),
        ("usize", "`usize`", "its size depends on the machine; use `u64`"),
        ("Atomic<isize>", "`isize`", "its size depends on the machine; use `i64`"),
        ("AtomicU64", "`AtomicU64`", "use `Atomic<u64>`"),
        ("Mutex<u64>", "`Mutex`", "use a `Lock` beside the fields it protects"),
        ("Duration", "`Duration`", "use `u64`, with the unit in the field's name"),
        ("&'static u8", "a reference", pointer),
        ("*mut u8", "a pointer of this process", pointer),
        ("fn()", "a function pointer", code),
        ("dyn Fn()", "a trait object", code),
        ("(u8, u8)", "a tuple", "use a `#[remote]` struct with named fields"),
        ("[u8]", "a slice", "use `[T; N]`, or a last field `Tail<T>`"),
    ] {
        check(&format!("bad: {ty}"), &[&format!("{what} cannot live in far memory: {instead}")]);
    }
    check(
        "bad: Atomic<u128>",
        &["an `Atomic` holds 8 bytes, the most that the network changes atomically: use `Versioned<u128>`"],
    );
    check("bad: Atomic<Link<Node>>", &["`Link` is a cell with operations of its own: remove the `Atomic`"]);
    for ty in ["Self", "Node<K, n>", "[Self; 2]"] {
        let message = "`Node` cannot contain itself: point to it with `Link<Node>` or `RemotePtr<Node>`";
        check(&format!("bad: {ty}"), &[message]);
    }
}

#[test]
fn a_tail_is_last() {
    let message =
        "a `Tail` must be the last field in far memory: a field after it would have no fixed offset";
    check("first: Tail<u8>, second: Tail<u8>", &[message]);
    check("last: Tail<u8>, #[local] after: u8", &[]);
    check(
        "tails: [Tail<u8>; 2]",
        &["a `Tail` cannot be an array's element: it must be the last field in far memory"],
    );
}

#[test]
fn names_of_generated_methods_are_refused() {
    for name in ["this", "new_in", "read", "clone", "into", "eq"] {
        let message = format!(
            "handles or pointers already have a method `{name}`: rename the field's accessors with `#[accessor({name}_field)]`"
        );
        check(&format!("{name}: u64"), &[&message]);
        check(&format!("#[accessor({name}_field)] {name}: u64"), &[]);
        let message = format!(
            "an accessor cannot be called `{name}`: handles or pointers already have a method of that name"
        );
        check(&format!("#[accessor({name})] other: u64"), &[&message]);
        check(&format!("#[local] {name}: u64, other: u64"), &[]);
    }
    check("n: u64", &["`n` is already a parameter of this struct: use another name"]);
    check("__x: u64", &["a field's name cannot begin with `__`, which is reserved for generated fields"]);
    for name in ["is_gone", "with_gone", "without_gone"] {
        let message = format!(
            "the mark `gone` has a method `{name}`: rename the mark, or the field's accessors with `#[accessor({name}_field)]`"
        );
        check(&format!("#[marks(gone)] next: Link<Self>, {name}: u64"), &[&message]);
    }
}

#[test]
fn marks_that_a_link_cannot_have_are_refused() {
    check(
        "#[marks(a, b, c, d)] next: Link<Self>",
        &[
            "a link to an object aligned to 8 bytes has 3 mark bits, not 4; `#[remote(align = N)]` makes room for more",
        ],
    );
    check(
        "#[marks(a, b, c, d)] next: Link<Other>",
        &["a link to an object aligned to 8 bytes has 3 mark bits, not 4"],
    );
    let wider = "struct Node { #[marks(a, b, c, d, e, f)] next: Link<Node> }";
    assert_eq!(outcome("align = 64", wider).0, [""; 0]);
    check("#[marks(a, a)] next: Link<Self>", &["the mark `a` is declared twice"]);
    check("#[marks] next: Link<Self>", &["name the marks: `#[marks(deleted)]`"]);
    check("#[marks()] next: Link<Self>", &["name the marks: `#[marks(deleted)]`"]);
    check(
        "#[marks(null)] next: Link<Self>",
        &["a mark cannot be called `null`: pointers already have a method `is_null`"],
    );
    check("#[marks(a)] next: u64", &["only a `Link` can have marks"]);
    check(
        "#[marks(a)] next: StampedLink<Self>",
        &["a `StampedLink` has no marks, because its spare bits hold the stamp: use a `Link`"],
    );
    check(
        "#[local] #[marks(a)] next: u64, key: K",
        &["a `#[local]` field cannot have marks: it is not in far memory"],
    );
    check("#[marks(a, b)] left: Link<Self>, #[marks(a, b)] right: [Link<Self>; 2]", &[]);
    // Each list has marks of its own.
    check("#[marks(a)] left: Link<Self>, #[marks(b, a)] right: Link<Self>", &[]);
    check("#[marks(a)] next: Tail<Link<Self>>", &[]);
    check("#[marks(a)] next: Tail<u64>", &["only a `Link` can have marks"]);
    check("#[marks(like = other::NodeMarked)] next: Link<Self>", &[]);
    check(
        "#[marks(of = other::NodeMarked)] next: Link<Self>",
        &["write `#[marks(of)]`, or `#[marks(like = NodeMarked)]` for the marks of another link"],
    );
}

#[test]
fn unknown_and_repeated_options_are_rejected() {
    let node = "struct Node { key: u64 }";
    for (options, message) in [
        ("algin = 64", "unknown option: `#[remote]` takes `align = N` and `crate = path`"),
        ("align = 64, align = 64", "`align` is given twice"),
        ("align = 4", "`align` must be a power of two from 8 to 4096, not 4"),
        ("align = 24", "`align` must be a power of two from 8 to 4096, not 24"),
        ("align = 8192", "`align` must be a power of two from 8 to 4096, not 8192"),
        ("align", "expected `=`"),
        ("align = x", "expected integer literal"),
    ] {
        assert_eq!(outcome(options, node).0, [message], "{options}");
    }
    check(
        "#[local(start = 1)] a: u64, key: K",
        &["unknown option: write `#[local]` or `#[local(default = EXPRESSION)]`"],
    );
    check("#[local(default = 1, default = 2)] a: u64, key: K", &["`default` is given twice"]);
    check("#[local] #[local] a: u64, key: K", &["this attribute is repeated"]);
    check(
        "#[serde(skip)] a: u64",
        &[
            "`#[serde]` has no effect on a field of a remote struct: fields accept `#[local]`, `#[marks(…)]`, `#[accessor(…)]`, documentation, lint levels, `#[deprecated]` and `#[must_use]`",
        ],
    );
    check(
        "#[expect(dead_code)] a: u64",
        &[
            "`#[expect]` would apply to several generated items, and only some cause the lint: write `#[allow(…)]`",
        ],
    );
    check(
        "#[local] #[must_use] a: u64, key: K",
        &["`#[must_use]` applies to accessors, and a `#[local]` field has none"],
    );
    check(
        "#[local] #[accessor(b)] a: u64, key: K",
        &["a `#[local]` field has no accessor: it is an ordinary field of the handle"],
    );
    check("#[accessor] a: u64", &["name the accessor: `#[accessor(other_name)]`"]);
    check(
        "#[accessor(key)] a: u64, key: K",
        &["another field already has an accessor `key`: use another name"],
    );
    let message =
        "a layout must be the same in every build: put `#[cfg]` on the struct, with one struct for each case";
    check("#[cfg(test)] a: u64", &[message]);
    check("#[cfg_attr(test, local)] a: u64", &[message]);
}

#[test]
fn each_mistake_in_a_tag_has_one_message() {
    let messages = |options: &str, item: &str| {
        let [options, item]: [TokenStream; 2] =
            [options, item].map(|text| text.parse().expect("a case is tokens"));
        let expansion = syn::parse2::<syn::File>(crate::tag::expand(options, item));
        errors(expansion.expect("the generated code is Rust").items)
    };
    assert_eq!(messages("a: 1, b: 9, c, r#type: 3, crate = other", "pub struct Tag;"), [""; 0]);
    let no_fields =
        "a tag is a struct without fields and parameters: `#[tag(fingerprint: 8, size: 8)] struct SlotTag;`";
    for (options, item, message) in [
        ("", "struct Tag;", "name the tag's fields and their bits: `#[tag(fingerprint: 8, size: 8)]`"),
        ("a: 0", "struct Tag;", "a field of a tag has 1 to 16 bits"),
        ("a: 17", "struct Tag;", "a field of a tag has 1 to 16 bits"),
        ("a: 16, b", "struct Tag;", "the fields have 17 bits together: a link has 16 beside its address"),
        ("a: 1, a: 2", "struct Tag;", "the field `a` is declared twice"),
        (
            "new",
            "struct Tag;",
            "a tag's field cannot be called `new`: tags already have a method of that name",
        ),
        ("a: 1", "struct Tag { a: u8 }", no_fields),
        ("a: 1", "struct Tag<T>;", no_fields),
    ] {
        assert_eq!(messages(options, item), [message], "{options} on {item}");
    }
}

#[test]
fn only_structs_with_named_fields_are_remote() {
    let no_field = "a remote struct needs at least one field in far memory";
    for (item, message) in [
        ("struct Node;", no_field),
        ("struct Node {}", no_field),
        ("struct Node { #[local] a: u64 }", no_field),
        ("struct Node(u64);", "a remote struct needs named fields: write `{ name: Type }`"),
        (
            "enum Node { A }",
            "an enum cannot be remote: derive `Word` for a C-like one and keep it in a field, or use a struct",
        ),
        (
            "union Node { a: u64 }",
            "a union cannot be remote: its bits do not show which field they belong to; use a struct",
        ),
        (
            "#[repr(C)] struct Node { a: u64 }",
            "the layout of a remote struct is fixed; for a larger alignment write `#[remote(align = N)]`",
        ),
        (
            "#[derive(Clone)] struct Node { a: u64 }",
            "a remote struct cannot derive traits: its snapshots are `Clone` and `Debug`; implement other traits by hand",
        ),
        (
            "struct Node<K> { key: K, next: Link<Node<K>> }",
            "far memory holds plain values only: write `K: Word`, or `K: Pod` for more than 8 bytes",
        ),
        (
            "struct Node<'a> { name: &'a str, #[local] other: Cow<'a, str> }",
            "an object in far memory cannot borrow from this process: use `RemotePtr<T>` or `Link<T>` instead of references",
        ),
    ] {
        let (messages, structs) = outcome("", item);
        assert_eq!(messages, [message], "{item}");
        assert_eq!(structs.len(), 5, "{item}");
    }
    assert_eq!(outcome("", "fn node() {}").0, ["`#[remote]` must be on a struct"]);
}

#[test]
fn no_mistake_hides_another() {
    let messages = about_fields("this: u64, name: String, #[marks(a)] index: usize, #[cfg(test)] b: Box<u8>");
    assert_eq!(messages.len(), 6, "{messages:#?}");
}

/// Uses of a rejected field are not further errors: it keeps its position in `init`, and its accessors.
#[test]
fn a_rejected_field_is_still_generated() {
    let (_, structs) = outcome("", "struct Node { key: u64, name: String, on: &'static [u8] }");
    for item in structs.iter().filter(|item| item.ident != "NodeFields") {
        let names: Vec<String> =
            item.fields.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect();
        assert_eq!(names[..3], ["key", "name", "on"], "{}", item.ident);
    }
}
