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

use std::mem::replace;

use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, File, ImplItemFn, ItemFn, ReturnType, Signature, TraitItemFn, Type, parse_quote};

/// A structure's source, and the bodies that its functions have in its mutants.
pub(crate) struct Merged {
    file: File,
    functions: Vec<Function>,
}

/// A function of a structure.
struct Function {
    /// Its own body.
    body: Block,
    /// False if its body cannot be chosen when a program runs.
    has_choice: bool,
    /// Its bodies in mutants, by their numbers.
    in_mutants: Vec<(usize, Block)>,
}

impl Merged {
    /// A structure without mutants.
    pub(crate) fn new(code: &str) -> Result<Self, String> {
        let mut file = parse(code)?;
        let functions = take_functions(&mut file);
        Ok(Self { file, functions })
    }

    /// Adds a mutant, whose whole source this is. Returns false if it cannot be merged.
    pub(crate) fn add(&mut self, mutant: usize, code: &str) -> Result<bool, String> {
        let other = Self::new(code)?;
        if !is_same(&self.file, &other.file) {
            return Ok(false);
        }
        let pairs = self.functions.iter_mut().zip(other.functions);
        let changed: Vec<_> = pairs.filter(|(own, new)| !is_same(&own.body, &new.body)).collect();
        if changed.is_empty() {
            return Err(format!("mutant {mutant} does not differ from its structure"));
        }
        if changed.iter().any(|(own, _)| !own.has_choice) {
            return Ok(false);
        }
        for (own, new) in changed {
            own.in_mutants.push((mutant, new.body));
        }
        Ok(true)
    }

    /// The source of all.
    pub(crate) fn code(mut self) -> String {
        let mut functions = self.functions.into_iter();
        each_body(&mut self.file, |_, body| {
            let Some(Function { body: own, in_mutants, .. }) = functions.next() else { return };
            *body = if in_mutants.is_empty() {
                own
            } else {
                let (mutants, bodies): (Vec<_>, Vec<_>) = in_mutants.into_iter().unzip();
                parse_quote!({
                    match crate::mutants::active() { #(#mutants => #bodies)* _ => #own }
                })
            };
        });
        self.file.into_token_stream().to_string()
    }
}

fn parse(code: &str) -> Result<File, String> {
    syn::parse_file(code).map_err(|error| format!("a structure's source: {error}"))
}

/// Takes the bodies of all functions out of a source.
fn take_functions(file: &mut File) -> Vec<Function> {
    let mut functions = Vec::new();
    each_body(file, |head, body| {
        let is_opaque =
            matches!(&head.output, ReturnType::Type(_, kind) if matches!(**kind, Type::ImplTrait(_)));
        functions.push(Function {
            body: replace(body, parse_quote!({})),
            has_choice: head.constness.is_none() && !is_opaque,
            in_mutants: Vec::new(),
        });
    });
    functions
}

/// Returns whether two parts of sources have the same tokens.
fn is_same(one: &impl ToTokens, other: &impl ToTokens) -> bool {
    one.to_token_stream().to_string() == other.to_token_stream().to_string()
}

/// Visits the functions of a source in order, but for those in bodies.
fn each_body(file: &mut File, each: impl FnMut(&Signature, &mut Block)) {
    visit_mut::visit_file_mut(&mut Bodies(each), file);
}

struct Bodies<F>(F);

impl<F: FnMut(&Signature, &mut Block)> VisitMut for Bodies<F> {
    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        (self.0)(&function.sig, &mut function.block);
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut ImplItemFn) {
        (self.0)(&function.sig, &mut function.block);
    }

    fn visit_trait_item_fn_mut(&mut self, function: &mut TraitItemFn) {
        if let Some(body) = &mut function.default {
            (self.0)(&function.sig, body);
        }
    }
}
