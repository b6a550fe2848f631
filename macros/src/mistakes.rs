//! What `#[remote]` says about mistakes that it finds itself: each is said once, in these words, and the others are not
//! hidden by it. (`ui-tests` has what the compiler makes of them, and where it points.)

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::{Item, ItemStruct, LitStr};

/// The items that `#[remote(options)] item` is expanded to.
fn expand(options: &str, item: &str) -> Vec<Item> {
    let [options, item]: [TokenStream; 2] =
        [options, item].map(|text| text.parse().expect("a case is tokens"));
    syn::parse2::<syn::File>(crate::expand::remote(options, item)).expect("what is generated is Rust").items
}

/// The messages among them, and the structs.
fn outcome(options: &str, item: &str) -> (Vec<String>, Vec<ItemStruct>) {
    let (mut messages, mut structs) = (Vec::new(), Vec::new());
    for item in expand(options, item) {
        match item {
            Item::Macro(item)
                if item.mac.path.segments.last().is_some_and(|last| last.ident == "compile_error") =>
            {
                let message = <LitStr as syn::parse::Parse>::parse.parse2(item.mac.tokens);
                messages.push(message.expect("an error has a message").value());
            }
            Item::Struct(item) => structs.push(item),
            _ => {}
        }
    }
    (messages, structs)
}

/// The messages about a struct with these fields, after which its five types are there all the same.
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
fn a_sound_struct_has_no_message() {
    check(
        "key: K, next: Link<Self>, more: [[Atomic<u32>; 2]; n], #[local] read: Cell<u64>, rest: Tail<u8>",
        &[],
    );
}

#[test]
fn each_refused_type_says_what_to_use() {
    let code = "data is distributed, code is replicated; keep a number that stands for it";
    let pointer = "use `RemotePtr<T>`, or `Link<T>` if it changes";
    let text = "use `[u8; N]` for text of a limited length, or a last field `Tail<u8>`";
    for (ty, what, instead) in [
        ("String", "`String`", text),
        ("std::string::String", "`String`", text),
        ("[[String; 2]; 3]", "`String`", text),
        ("Versioned<String>", "`String`", text),
        ("str", "`str`", text),
        ("Vec<u8>", "`Vec`", "use `[T; N]` for a fixed number of elements, or a last field `Tail<T>`"),
        ("Option<u8>", "`Option`", "use a `Link<T>`, which may be null, or a value that stands for none"),
        ("usize", "`usize`", "it is not the same on every machine; use `u64`"),
        ("Atomic<isize>", "`isize`", "it is not the same on every machine; use `i64`"),
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
        &["an `Atomic` holds 8 bytes, what the network moves at once: use `Versioned<u128>`"],
    );
    check(
        "bad: Atomic<Link<Node>>",
        &["`Link` is a cell of its own, with operations of its own: take off the `Atomic`"],
    );
    for ty in ["Self", "Node<K, n>", "[Self; 2]"] {
        let message = "`Node` cannot contain itself: point to it with `Link<Node>` or `RemotePtr<Node>`";
        check(&format!("bad: {ty}"), &[message]);
    }
}

#[test]
fn a_tail_is_last() {
    let message = "a `Tail` is the last field in far memory: what follows it would have no fixed place";
    check("first: Tail<u8>, second: Tail<u8>", &[message]);
    check("last: Tail<u8>, #[local] after: u8", &[]);
    check("tails: [Tail<u8>; 2]", &["an array's elements cannot have tails: a `Tail` is a last field"]);
}

#[test]
fn names_that_are_taken_are_refused() {
    for name in ["this", "new_in", "read", "clone", "into", "eq"] {
        let message = format!(
            "handles or pointers have a method `{name}`: name the field's accessors otherwise, with `#[accessor({name}_field)]`"
        );
        check(&format!("{name}: u64"), &[&message]);
        check(&format!("#[accessor({name}_field)] {name}: u64"), &[]);
        let message =
            format!("an accessor cannot be called `{name}`: handles or pointers have a method of that name");
        check(&format!("#[accessor({name})] other: u64"), &[&message]);
        check(&format!("#[local] {name}: u64, other: u64"), &[]);
    }
    check("n: u64", &["`n` is a parameter of this struct already: use another name"]);
    check("__x: u64", &["a field's name cannot begin with `__`: those of generated fields do"]);
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
    check("#[marks(a, a)] next: Link<Self>", &["the mark `a` is named twice"]);
    check("#[marks] next: Link<Self>", &["name the marks: `#[marks(deleted)]`"]);
    check("#[marks()] next: Link<Self>", &["name the marks: `#[marks(deleted)]`"]);
    check(
        "#[marks(null)] next: Link<Self>",
        &["a mark cannot be called `null`: pointers have methods of that name"],
    );
    check("#[marks(a)] next: u64", &["only a `Link` has marks"]);
    check(
        "#[marks(a)] next: StampedLink<Self>",
        &["a `StampedLink` has no marks, its spare bits are the stamp: use a `Link`"],
    );
    check("#[local] #[marks(a)] next: u64, key: K", &["a `#[local]` field is no link and has no marks"]);
    check("#[marks(a, b)] left: Link<Self>, #[marks(a, b)] right: [Link<Self>; 2]", &[]);
    // Each list has marks of its own.
    check("#[marks(a)] left: Link<Self>, #[marks(b, a)] right: Link<Self>", &[]);
    check("#[marks(a)] next: Tail<Link<Self>>", &[]);
    check("#[marks(a)] next: Tail<u64>", &["only a `Link` has marks"]);
    check("#[marks(like = other::NodeMarked)] next: Link<Self>", &[]);
    check(
        "#[marks(of = other::NodeMarked)] next: Link<Self>",
        &["write `#[marks(of)]`, or `#[marks(like = NodeMarked)]` for the marks of another link"],
    );
}

#[test]
fn options_are_known_and_stand_once() {
    let node = "struct Node { key: u64 }";
    for (options, message) in [
        ("algin = 64", "unknown option: `#[remote]` takes `align = N` and `crate = path`"),
        ("align = 64, align = 64", "`align` is given twice"),
        ("align = 4", "`align` is a power of two from 8 to 4096, not 4"),
        ("align = 24", "`align` is a power of two from 8 to 4096, not 24"),
        ("align = 8192", "`align` is a power of two from 8 to 4096, not 8192"),
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
    check("#[local] #[local] a: u64, key: K", &["this attribute stands here already"]);
    check(
        "#[serde(skip)] a: u64",
        &[
            "`#[serde]` on a field reaches nothing that is generated: fields take `#[local]`, `#[marks(…)]`, `#[accessor(…)]`, documentation, lint levels, `#[deprecated]` and `#[must_use]`",
        ],
    );
    check(
        "#[expect(dead_code)] a: u64",
        &["a field becomes several items, and a lint may be expected of one only: write `#[allow(…)]`"],
    );
    check(
        "#[local] #[must_use] a: u64, key: K",
        &["`#[must_use]` is for a field's accessors, and a `#[local]` field has none"],
    );
    check(
        "#[local] #[accessor(b)] a: u64, key: K",
        &["a `#[local]` field has no accessor: it is an ordinary field of the handle"],
    );
    check("#[accessor] a: u64", &["name the accessor: `#[accessor(other_name)]`"]);
    check(
        "#[accessor(key)] a: u64, key: K",
        &["`key` is the accessor of another field already: use another name"],
    );
    let message =
        "a layout must be the same in every build: put `#[cfg]` on the struct, with one struct for each case";
    check("#[cfg(test)] a: u64", &[message]);
    check("#[cfg_attr(test, local)] a: u64", &[message]);
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
            "a union cannot be remote: its bits mean nothing by themselves; use a struct",
        ),
        (
            "#[repr(C)] struct Node { a: u64 }",
            "the layout of a remote struct is fixed; for a stricter alignment write `#[remote(align = N)]`",
        ),
        (
            "#[derive(Clone)] struct Node { a: u64 }",
            "`#[remote]` generates what goes with the struct: snapshots are `Clone` and `Debug`; implement other traits by hand",
        ),
        (
            "struct Node<K> { key: K, next: Link<Node<K>> }",
            "far memory holds plain values only: write `K: Word`, or `K: Pod` for more than 8 bytes",
        ),
        (
            "struct Node<'a> { name: &'a str, #[local] other: Cow<'a, str> }",
            "nothing in far memory has a lifetime of this process: use `RemotePtr<T>` or `Link<T>` instead of references",
        ),
    ] {
        let (messages, structs) = outcome("", item);
        assert_eq!(messages, [message], "{item}");
        assert_eq!(structs.len(), 5, "{item}");
    }
    assert_eq!(outcome("", "fn node() {}").0, ["`#[remote]` goes on a struct"]);
}

#[test]
fn no_mistake_hides_another() {
    let messages = about_fields("this: u64, name: String, #[marks(a)] index: usize, #[cfg(test)] b: Box<u8>");
    assert_eq!(messages.len(), 6, "{messages:#?}");
}

/// So that uses of the field are no further mistakes: it keeps its place in `init`, and its accessors.
#[test]
fn a_refused_field_is_there_all_the_same() {
    let (_, structs) = outcome("", "struct Node { key: u64, name: String, on: &'static [u8] }");
    for item in structs.iter().filter(|item| item.ident != "NodeFields") {
        let names: Vec<String> =
            item.fields.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect();
        assert_eq!(names[..3], ["key", "name", "on"], "{}", item.ident);
    }
}
