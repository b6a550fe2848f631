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
    let too_many = "struct Node { #[marks(a, b, c, d, e, f, g)] next: Link<Node> }";
    assert_eq!(
        outcome("align = 128", too_many).0,
        ["a link to an object aligned to 128 bytes has 6 mark bits, not 7: the most that a link can have"]
    );
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

/// The error messages of `#[delegated(options)]`, and the methods of the client.
fn of_delegated(options: &str, item: &str) -> (Vec<String>, Vec<String>) {
    let [options, item]: [TokenStream; 2] =
        [options, item].map(|text| text.parse().expect("a case is tokens"));
    let items = syn::parse2::<syn::File>(crate::delegated::expand(options, item));
    let items = items.expect("the generated code is Rust").items;
    let mut methods = Vec::new();
    for item in &items {
        let Item::Const(item) = item else { continue };
        let syn::Expr::Block(block) = &*item.expr else { continue };
        for statement in &block.block.stmts {
            if let syn::Stmt::Item(Item::Impl(client)) = statement
                && client.trait_.is_none()
                && matches!(client.items.first(), Some(syn::ImplItem::Fn(first)) if first.sig.ident == "entrust")
            {
                let functions = client.items.iter().filter_map(|item| match item {
                    syn::ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
                    _ => None,
                });
                methods.extend(functions.skip(3));
            }
        }
    }
    (errors(items), methods)
}

#[test]
fn each_mistake_in_a_delegated_method_has_one_message() {
    let reference =
        |instead: &str| format!("a reference cannot be sent to another thread's process: {instead}");
    let generic =
        "a delegated method cannot be generic: a request names one function; write a method for each type";
    let own = "use the value itself, or a `RemotePtr<T>`";
    let by_value = "a delegated method cannot take `self` by value, because its trustee keeps the value: use `&self` or `&mut self`";
    let reserved = |name: &str| {
        format!(
            "clients already have a function `{name}`: rename the method, or move it to another `impl` block"
        )
    };
    for (method, message) in [
        (
            "async fn f(&self)",
            "a delegated method cannot be `async`, because its trustee does not wait: take a `&Context<'_>`, and request what it needs with `apply_then`",
        ),
        (
            "extern \"C\" fn f(&self)",
            "a delegated method cannot be `extern`: Farfield calls it by Rust's own convention",
        ),
        ("fn f<T>(&self, a: T)", generic),
        ("fn f<const N: u8>(&self)", generic),
        (
            "fn f<'a>(&'a self)",
            "a delegated method cannot have lifetime parameters: nothing that it takes or returns borrows",
        ),
        (
            "fn f(&self) where Self: Copy",
            "a delegated method cannot have bounds of its own: put them on the `impl` block",
        ),
        ("fn f(self)", by_value),
        ("fn f(mut self)", by_value),
        ("fn f(self: Box<Self>)", by_value),
        ("fn f(&self, a: &str)", &reference("use `String`")),
        ("fn f(&self, a: &'static [u8])", &reference("use `Vec<T>`")),
        ("fn f(&self, a: (u8, Option<&mut u8>))", &reference(own)),
        ("fn f(&self) -> &u64", &reference(own)),
        ("fn f(&self, c: &mut Context<'_>)", &reference(own)),
        (
            "fn f(&self, #[cfg(test)] a: u8)",
            "a delegated method must have the same arguments in every build: put `#[cfg]` on the method",
        ),
        ("fn f(&self, a: u8, c: &Context<'_>)", "a `&Context<'_>` must be the first argument after `self`"),
        (
            "fn f(&self, a: impl Copy)",
            "`impl Trait` cannot be sent to another thread's process: name a type, which both processes know",
        ),
        (
            "fn f(&self) -> impl Copy",
            "`impl Trait` cannot be sent to another thread's process: name a type, which both processes know",
        ),
        (
            "fn f(&self, a: fn())",
            "a function pointer cannot be sent to another thread's process: data travels, code does not; use an enum",
        ),
        (
            "fn f(&self, a: *const u8)",
            "a pointer of this process cannot be sent to another thread's process: use `RemotePtr<T>`",
        ),
        (
            "fn f(&self, a: Vec<Cow<'_, str>>)",
            "a type that borrows cannot be sent to another thread's process: use one that owns its data",
        ),
        (
            "fn f(&self, a: [usize; 2])",
            "`usize` cannot be sent to another thread's process: its size depends on the machine; use `u64`",
        ),
        (
            "fn f(&self) -> Result<(), isize>",
            "`isize` cannot be sent to another thread's process: its size depends on the machine; use `i64`",
        ),
        (
            "fn f(&self, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8)",
            "a request has 6 arguments at most, not 7: group some in a struct with `#[derive(Message)]`",
        ),
    ] {
        let block = format!(
            "impl Counter {{ {method} {{ loop {{}} }} fn good(&mut self, c: &Context, a: Trust<usize>) {{}} }}"
        );
        assert_eq!(
            of_delegated("", &block),
            (vec![message.to_owned()], vec!["good".to_owned(), "f".to_owned()]),
            "{method}"
        );
    }
    for name in ["entrust", "open", "via", "clone", "into"] {
        let block = format!("impl Counter {{ fn {name}(&self) {{}} fn f(&self) {{}} }}");
        assert_eq!(of_delegated("", &block), (vec![reserved(name)], vec!["f".to_owned()]));
    }
    let (messages, methods) =
        of_delegated("", "impl Counter { fn f(self, a: &str) -> usize {} fn g(&self, a: usize) {} }");
    assert_eq!((messages.len(), methods.len()), (4, 2), "no mistake hides another");
}

#[test]
fn a_block_that_cannot_be_delegated_has_one_message() {
    let f = "{ fn f(&self) {} }";
    for (options, item, message) in [
        ("", "fn f() {}", "`#[delegated]` must be on an `impl` block"),
        (
            "",
            "impl Drop for Counter { fn drop(&mut self) {} }",
            "`#[delegated]` must be on an `impl` block of the type's own methods, not of a trait",
        ),
        ("", &format!("impl [u8] {f}"), "`#[delegated]` must be on an `impl` block of a type with a name"),
        (
            "",
            &format!("impl<'a> Counter<'a> {f}"),
            "a value of a trustee cannot borrow: it stays when the function that made it returns",
        ),
        (
            "",
            "impl Counter { fn new() {} }",
            "there is no method to delegate: a delegated method takes `&self` or `&mut self`",
        ),
        (
            "name = Client",
            &format!("impl Counter {f}"),
            "unknown option: `#[delegated]` takes `client = Name` and `crate = path`",
        ),
        ("client = A, client = B", &format!("impl Counter {f}"), "`client` is given twice"),
    ] {
        assert_eq!(of_delegated(options, item).0, [message], "{options} on {item}");
    }
    assert_eq!(
        of_delegated("client = A, crate = other", &format!("impl Counter<u8> {f}")),
        (vec![], vec!["f".to_owned()])
    );
}

#[test]
fn each_mistake_in_a_message_has_one_message() {
    let outcome = |item: &str| {
        let expansion = crate::message::derive(item.parse().expect("a case is tokens"));
        let items = syn::parse2::<syn::File>(expansion).expect("the generated code is Rust").items;
        let is_implemented = items.iter().any(|item| matches!(item, Item::Impl(_) | Item::Const(_)));
        (errors(items), is_implemented)
    };
    let itself =
        "a message cannot contain itself: send a list, whose elements name each other by their index";
    let reference = "a reference cannot be sent to another thread's process: use `String`";
    for (item, message) in [
        ("enum Never {}", "a message needs at least one variant: this type has no values"),
        (
            "union Bits { a: u8 }",
            "a union cannot be a message: its bits do not show which field they belong to; use an enum",
        ),
        ("struct Line(&'static str);", reference),
        ("enum Change { Clear, Push { line: Option<&'static str> } }", reference),
        ("struct Tree(Vec<Self>);", itself),
        ("enum Tree { Leaf, Node((u8, Option<Tree>)) }", itself),
        (
            "struct Length(usize);",
            "`usize` cannot be sent to another thread's process: its size depends on the machine; use `u64`",
        ),
        ("#[message(name = a)] struct Line(u8);", "unknown option: `#[message]` takes `crate = path`"),
    ] {
        assert_eq!(outcome(item), (vec![message.to_owned()], true), "{item}");
    }
    assert_eq!(outcome("struct Line<'a>(&'a str);"), (vec![reference.to_owned()], false));
    let borrows = "a message cannot borrow: references cannot be sent to another thread's process";
    assert_eq!(outcome("struct Line<'a>(u8, Own);"), (vec![borrows.to_owned()], false));
    for item in [
        "struct Node(Trust<Self>, RemotePtr<Node>, Trust<usize>);",
        "struct A;",
        "struct A {}",
        "enum A { B(), C {} }",
    ] {
        assert_eq!(outcome(item), (vec![], true), "{item}");
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
