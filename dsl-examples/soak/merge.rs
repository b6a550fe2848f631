//! Merges the mutants of a structure into one module.
//!
//! A function's body becomes a choice among the bodies of the mutants that change it, and its own:
//!
//! ```text
//! fn f(…) -> R { match crate::mutants::active() { 3 => { … } 8 => { … } _ => { … } } }
//! ```
//!
//! So a mutant costs the compiler the functions that it changes. What cannot be chosen when a program runs cannot be merged: a signature, a type, a
//! constant, a macro, a `const fn`, and a function that returns `impl Trait`, whose bodies would have different types.

use std::collections::BTreeMap;

use quote::{ToTokens, quote};
use syn::{Block, File, ImplItem, Item, ReturnType, Signature, Type, parse_quote};

/// A structure's source, and the bodies that functions have in its mutants.
pub(crate) struct Merged {
    file: File,
    bodies: BTreeMap<Place, Vec<(usize, Block)>>,
}

/// Where a function is: the index of an item of the source, of an item in that, and so on.
type Place = Vec<usize>;

impl Merged {
    /// A structure without mutants.
    pub(crate) fn new(code: &str) -> Result<Self, String> {
        Ok(Self { file: parse(code)?, bodies: BTreeMap::new() })
    }

    /// Adds a mutant, whose whole source this is. Returns false if it cannot be merged.
    pub(crate) fn add(&mut self, mutant: usize, code: &str) -> Result<bool, String> {
        let changed = parse(code)?;
        let mut found = Vec::new();
        if !compare(&self.file.items, &changed.items, &mut Place::new(), &mut found) {
            return Ok(false);
        }
        if found.is_empty() {
            return Err(format!("mutant {mutant} does not differ from its structure"));
        }
        for (place, block) in found {
            self.bodies.entry(place).or_default().push((mutant, block));
        }
        Ok(true)
    }

    /// The source of all.
    pub(crate) fn code(mut self) -> String {
        for (place, bodies) in self.bodies {
            let block = body_at(&mut self.file.items, &place);
            let (mutants, bodies): (Vec<_>, Vec<_>) = bodies.into_iter().unzip();
            *block = parse_quote!({
                match crate::mutants::active() { #(#mutants => #bodies)* _ => #block }
            });
        }
        self.file.into_token_stream().to_string()
    }
}

fn parse(code: &str) -> Result<File, String> {
    syn::parse_file(code).map_err(|error| format!("a structure's source: {error}"))
}

/// Collects the bodies that differ in a mutant. Returns false if something else differs.
fn compare(base: &[Item], mutant: &[Item], place: &mut Place, found: &mut Vec<(Place, Block)>) -> bool {
    compare_all(base, mutant, place, found, |one, other, place, found| match (one, other) {
        (Item::Fn(one), Item::Fn(other)) => {
            let heads = [one, other].map(|function| (&function.attrs, &function.vis, &function.sig));
            found.push((place.clone(), (*other.block).clone()));
            is_same_head(heads[0], heads[1])
        }
        (Item::Mod(one), Item::Mod(other)) => match (&one.content, &other.content) {
            (Some((_, base)), Some((_, mutant))) => {
                one.ident == other.ident && compare(base, mutant, place, found)
            }
            _ => false,
        },
        (Item::Impl(one), Item::Impl(other)) => {
            let without_items = |item: &syn::ItemImpl| syn::ItemImpl { items: Vec::new(), ..item.clone() };
            is_same(&without_items(one), &without_items(other))
                && compare_all(&one.items, &other.items, place, found, |one, other, place, found| {
                    match (one, other) {
                        (ImplItem::Fn(one), ImplItem::Fn(other)) => {
                            let heads =
                                [one, other].map(|function| (&function.attrs, &function.vis, &function.sig));
                            found.push((place.clone(), other.block.clone()));
                            is_same_head(heads[0], heads[1])
                        }
                        _ => false,
                    }
                })
        }
        _ => false,
    })
}

/// Compares items one by one: those that are not the same by `differ`, which is told their place.
fn compare_all<T: ToTokens>(
    base: &[T],
    mutant: &[T],
    place: &mut Place,
    found: &mut Vec<(Place, Block)>,
    mut differ: impl FnMut(&T, &T, &mut Place, &mut Vec<(Place, Block)>) -> bool,
) -> bool {
    base.len() == mutant.len()
        && base.iter().zip(mutant).enumerate().all(|(index, (one, other))| {
            place.push(index);
            let can_be_merged = is_same(one, other) || differ(one, other, place, found);
            place.pop();
            can_be_merged
        })
}

/// Attributes, visibility and signature of a function.
type Head<'a> = (&'a Vec<syn::Attribute>, &'a syn::Visibility, &'a Signature);

/// Returns whether two functions have the same head, and their bodies can be chosen when a program runs.
fn is_same_head(one: Head<'_>, other: Head<'_>) -> bool {
    let text = |(attributes, visibility, signature): Head<'_>| {
        quote!(#(#attributes)* #visibility #signature).to_string()
    };
    let is_opaque =
        matches!(&one.2.output, ReturnType::Type(_, kind) if matches!(**kind, Type::ImplTrait(_)));
    text(one) == text(other) && one.2.constness.is_none() && !is_opaque
}

/// Returns whether two parts of sources have the same tokens.
fn is_same(one: &impl ToTokens, other: &impl ToTokens) -> bool {
    one.to_token_stream().to_string() == other.to_token_stream().to_string()
}

/// The body of the function at a place that [`compare`] has found.
fn body_at<'a>(items: &'a mut [Item], place: &[usize]) -> &'a mut Block {
    match (&mut items[place[0]], &place[1..]) {
        (Item::Fn(function), []) => &mut function.block,
        (Item::Impl(item), [index]) => match &mut item.items[*index] {
            ImplItem::Fn(function) => &mut function.block,
            _ => unreachable!("it is no function"),
        },
        (Item::Mod(syn::ItemMod { content: Some((_, items)), .. }), rest) => body_at(items, rest),
        _ => unreachable!("it is no function"),
    }
}
