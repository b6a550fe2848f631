//! Options: the arguments of `#[remote(…)]`, `#[local(…)]`, `#[marks(…)]`, `#[delegated(…)]`, `#[main(…)]` and `#[test(…)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Ident, LitInt, LitStr, Meta, Path, Token};

use crate::errors::Errors;

/// The alignments that `#[remote(align = N)]` accepts, in bytes: from a word to a page.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=4096;

/// The options of `#[remote]`.
pub(crate) struct RemoteOptions {
    /// In bytes.
    pub(crate) align: u64,
    /// The path of the runtime in generated code.
    pub(crate) krate: Path,
}

/// The options of `#[main]` and `#[test]`.
pub(crate) struct EntryOptions {
    pub(crate) threads: TokenStream,
    pub(crate) cluster: TokenStream,
    pub(crate) krate: Path,
    /// The seeds of a test in the simulator; `None` for any other test.
    pub(crate) seeds: Option<TokenStream>,
}

pub(crate) fn default_crate() -> Path {
    syn::parse_quote!(::farfield)
}

/// The value of `crate = path`. A string is accepted too, as in serde.
fn crate_path(meta: &ParseNestedMeta<'_>) -> syn::Result<Path> {
    let value = meta.value()?;
    if value.peek(LitStr) { value.parse::<LitStr>()?.parse() } else { value.call(Path::parse_mod_style) }
}

/// Rejects an option that was given before.
fn reject_repeated(seen: &mut Vec<String>, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    let name = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
    if seen.contains(&name) {
        return Err(meta.error(format!("`{name}` is given twice")));
    }
    seen.push(name);
    Ok(())
}

pub(crate) fn remote(options: TokenStream, errors: &mut Errors) -> RemoteOptions {
    let mut parsed = RemoteOptions { align: *ALIGNMENTS.start(), krate: default_crate() };
    let mut seen = Vec::new();
    let parser = syn::meta::parser(|meta| {
        reject_repeated(&mut seen, &meta)?;
        if meta.path.is_ident("align") {
            let literal: LitInt = meta.value()?.parse()?;
            let align = literal.base10_parse::<u64>().unwrap_or(0);
            if !align.is_power_of_two() || !ALIGNMENTS.contains(&align) {
                let message = format!("`align` must be a power of two from 8 to 4096, not {literal}");
                return Err(syn::Error::new_spanned(literal, message));
            }
            parsed.align = align;
        } else if meta.path.is_ident("crate") {
            parsed.krate = crate_path(&meta)?;
        } else {
            return Err(meta.error("unknown option: `#[remote]` takes `align = N` and `crate = path`"));
        }
        Ok(())
    });
    errors.ok(parser.parse2(options));
    parsed
}

/// The default cluster of a test in the simulator. Its limit of virtual time ends runs that hang.
const SIM_CLUSTER: &str = "sim:limit=1s";

pub(crate) fn entry(options: TokenStream, attribute: &str, errors: &mut Errors) -> EntryOptions {
    let (mut threads, mut cluster, mut krate) = (quote!(1), None, default_crate());
    let (mut sim, mut seeds) = (false, None);
    let mut seen = Vec::new();
    let parser = syn::meta::parser(|meta| {
        reject_repeated(&mut seen, &meta)?;
        if meta.path.is_ident("threads") {
            let value: Expr = meta.value()?.parse()?;
            if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(literal), .. }) = &value
                && literal.base10_parse::<usize>().unwrap_or(0) == 0
            {
                return Err(syn::Error::new_spanned(literal, "`threads` must be at least 1"));
            }
            threads = quote!(#value);
        } else if meta.path.is_ident("cluster") {
            let value: Expr = meta.value()?.parse()?;
            cluster = Some(quote!(#value));
        } else if meta.path.is_ident("crate") {
            krate = crate_path(&meta)?;
        } else if attribute == "test" && meta.path.is_ident("sim") {
            sim = true;
        } else if attribute == "test" && meta.path.is_ident("seeds") {
            seeds = Some(meta.value()?.parse::<Expr>()?);
        } else {
            let takes = match attribute {
                "test" => "`threads = N`, `cluster = \"URL\"`, `sim`, `seeds = RANGE` and `crate = path`",
                _ => "`threads = N`, `cluster = \"URL\"` and `crate = path`",
            };
            return Err(meta.error(format!("unknown option: `#[{attribute}]` takes {takes}")));
        }
        Ok(())
    });
    errors.ok(parser.parse2(options));
    if let (false, Some(seeds)) = (sim, &seeds) {
        errors.at(seeds, "only the simulator has seeds: write `sim, seeds = …`");
    }
    let default = if sim { quote!(#SIM_CLUSTER) } else { quote!("local:") };
    let seeds = sim.then(|| seeds.map_or(quote!(0..100), |seeds| quote!(#seeds)));
    EntryOptions { threads, cluster: cluster.unwrap_or(default), krate, seeds }
}

/// The path of `#[word(crate = path)]`, or of another derive's attribute, or the default.
pub(crate) fn derive(attrs: &[Attribute], attribute: &str, errors: &mut Errors) -> Path {
    let mut krate = default_crate();
    let mut seen = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident(attribute)) {
        errors.ok(attr.parse_nested_meta(|meta| {
            reject_repeated(&mut seen, &meta)?;
            if !meta.path.is_ident("crate") {
                return Err(meta.error(format!("unknown option: `#[{attribute}]` takes `crate = path`")));
            }
            krate = crate_path(&meta)?;
            Ok(())
        }));
    }
    krate
}

/// The options of `#[delegated]`.
pub(crate) struct DelegatedOptions {
    /// The name of the client, if it is set.
    pub(crate) client: Option<Ident>,
    pub(crate) krate: Path,
}

pub(crate) fn delegated(options: TokenStream, errors: &mut Errors) -> DelegatedOptions {
    let mut parsed = DelegatedOptions { client: None, krate: default_crate() };
    let mut seen = Vec::new();
    let parser = syn::meta::parser(|meta| {
        reject_repeated(&mut seen, &meta)?;
        if meta.path.is_ident("client") {
            parsed.client = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("crate") {
            parsed.krate = crate_path(&meta)?;
        } else {
            return Err(meta.error("unknown option: `#[delegated]` takes `client = Name` and `crate = path`"));
        }
        Ok(())
    });
    errors.ok(parser.parse2(options));
    parsed
}

/// The initial value of a `#[local]` field: `#[local(default = EXPR)]`, or its type's default.
pub(crate) fn local(attr: &Attribute, errors: &mut Errors) -> TokenStream {
    let mut initial = quote!(::core::default::Default::default());
    if matches!(attr.meta, Meta::Path(_)) {
        return initial;
    }
    let mut seen = Vec::new();
    errors.ok(attr.parse_nested_meta(|meta| {
        reject_repeated(&mut seen, &meta)?;
        if !meta.path.is_ident("default") {
            return Err(meta.error("unknown option: write `#[local]` or `#[local(default = EXPRESSION)]`"));
        }
        let value: Expr = meta.value()?.parse()?;
        initial = quote!(#value);
        Ok(())
    }));
    initial
}

/// The argument of `#[marks(…)]`.
pub(crate) enum Marks {
    /// `#[marks(a, b)]`: the names of the link's mark bits, lowest first.
    Named(Vec<Ident>),
    /// `#[marks(like = NodeMarked)]`: the marks of another link.
    Like(Path),
}

/// The option of `#[marks(…)]` for the marks of another link.
const LIKE: &str = "like";

/// The names in `#[marks(a, b)]`, or the path in `#[marks(like = path)]`.
pub(crate) fn marks(attr: &Attribute, errors: &mut Errors) -> Marks {
    let Meta::List(list) = &attr.meta else {
        errors.at(attr, "name the marks: `#[marks(deleted)]`");
        return Marks::Named(Vec::new());
    };
    let like = |input: syn::parse::ParseStream<'_>| {
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        if name != LIKE {
            let message = format!(
                "write `#[marks({name})]`, or `#[marks(like = NodeMarked)]` for the marks of another link"
            );
            return Err(syn::Error::new_spanned(name, message));
        }
        input.call(Path::parse_mod_style)
    };
    let is_like = |input: syn::parse::ParseStream<'_>| {
        let is = input.peek(Ident) && input.peek2(Token![=]);
        input.parse::<TokenStream>()?;
        Ok(is)
    };
    if list.parse_args_with(is_like).unwrap_or(false) {
        return match errors.ok(list.parse_args_with(like)) {
            Some(path) => Marks::Like(path),
            None => Marks::Named(Vec::new()),
        };
    }
    let names = errors.ok(list.parse_args_with(Punctuated::<Ident, Token![,]>::parse_terminated));
    let names: Vec<Ident> = names.into_iter().flatten().collect();
    if names.is_empty() && list.tokens.is_empty() {
        errors.at(attr, "name the marks: `#[marks(deleted)]`");
    }
    Marks::Named(names)
}

/// The name in `#[accessor(name)]`.
pub(crate) fn accessor(attr: &Attribute, errors: &mut Errors) -> Option<Ident> {
    let name = attr.parse_args::<Ident>().ok();
    if name.is_none() {
        errors.at(attr, "name the accessor: `#[accessor(other_name)]`");
    }
    name
}
