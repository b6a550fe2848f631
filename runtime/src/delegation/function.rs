//! The functions that a client names and a trustee calls.

use std::any::Any;
use std::panic::Location;

use super::context::Context;
use super::slots::Refusal;
use farfield_fabric::program::{FunctionName, Nameable, NamedFunction, Signature};
use farfield_words::{Message, Reader, Writer};

/// Calls a function of some type: decodes its arguments, and encodes its result.
pub(super) type Shim =
    fn(NamedFunction, &mut dyn Any, &Context<'_>, &mut Reader<'_>, &mut Writer<'_>) -> Result<(), Refusal>;

/// A method of a `#[delegated]` impl: what the trustee's build knows of it.
pub struct Method {
    pub(super) name: &'static str,
    pub(super) fingerprint: u64,
    pub(super) shim: MethodShim,
}

/// Calls a method.
pub(super) type MethodShim =
    fn(&mut dyn Any, &Context<'_>, &mut Reader<'_>, &mut Writer<'_>) -> Result<(), CallRefused>;

/// A call that was refused before the function was called.
pub(super) struct CallRefused(pub(super) Refusal);

impl Method {
    /// Makes a method. The fingerprint stands for its name and its types.
    pub(super) const fn new(name: &'static str, fingerprint: u64, shim: MethodShim) -> Self {
        Self { name, fingerprint, shim }
    }
}

/// A type with a `#[delegated]` impl.
pub trait Delegated: 'static {
    /// Its methods.
    const METHODS: &'static [Method];
}

/// How a function is named.
#[derive(Clone, Copy)]
pub(super) enum Naming {
    Position {
        function: Option<Nameable<Shim>>,
        described: &'static str,
        given_at: &'static Location<'static>,
    },
    Method(&'static Method),
}

impl Naming {
    /// Returns what distinguishes the function in a pair.
    #[inline]
    pub(super) fn key(&self) -> [usize; 2] {
        match self {
            Self::Position { function, .. } => function.map_or([0; 2], Nameable::key),
            Self::Method(method) => [usize::MAX, method.fingerprint as usize],
        }
    }

    /// Returns the position of a function; `None` if it has none, or is a method.
    pub(super) fn position(&self) -> Option<FunctionName> {
        match self {
            Self::Position { function, .. } => (*function)?.name(),
            Self::Method(_) => None,
        }
    }

    /// Returns whether another thread could find it: it is a method, or has a position.
    pub(super) fn is_named(&self) -> bool {
        matches!(self, Self::Method(_)) || self.position().is_some()
    }

    /// Returns a description for people.
    pub(super) fn describe(&self) -> Box<str> {
        match self {
            Self::Position { described, given_at, .. } => format!("{described} given at {given_at}").into(),
            Self::Method(method) => method.name.into(),
        }
    }
}

struct Of<T, A, R>(std::marker::PhantomData<(T, A, R)>);

impl<T: 'static, A: Message, R: Message> Of<T, A, R> {
    const PLAIN: &'static Signature<Shim> = &Signature::of::<fn(&mut T, A) -> R>(plain::<T, A, R>);
    const WITH_CONTEXT: &'static Signature<Shim> =
        &Signature::of::<fn(&mut T, &Context<'_>, A) -> R>(with_context::<T, A, R>);
}

fn plain<T: 'static, A: Message, R: Message>(
    function: NamedFunction,
    value: &mut dyn Any,
    _: &Context<'_>,
    args: &mut Reader<'_>,
    result: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let function = function.get::<fn(&mut T, A) -> R>().ok_or(Refusal::OtherBuild)?;
    call(value, args, result, function).map_err(|refused| refused.0)
}

fn with_context<T: 'static, A: Message, R: Message>(
    function: NamedFunction,
    value: &mut dyn Any,
    context: &Context<'_>,
    args: &mut Reader<'_>,
    result: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let function = function.get::<fn(&mut T, &Context<'_>, A) -> R>().ok_or(Refusal::OtherBuild)?;
    call(value, args, result, |value, args| function(value, context, args)).map_err(|refused| refused.0)
}

/// Decodes arguments, calls a function, and encodes its result.
pub(super) fn call<T: 'static, A: Message, R: Message>(
    value: &mut dyn Any,
    args: &mut Reader<'_>,
    result: &mut Writer<'_>,
    function: impl FnOnce(&mut T, A) -> R,
) -> Result<(), CallRefused> {
    let value = value.downcast_mut::<T>().ok_or(CallRefused(Refusal::OtherType))?;
    let args = A::read(args).filter(|_| args.is_empty()).ok_or(CallRefused(Refusal::Undecodable))?;
    function(value, args).write(result);
    Ok(())
}

/// Names a function by its position.
pub(super) fn by_position<T: 'static, A: Message, R: Message>(
    function: fn(&mut T, A) -> R,
    given_at: &'static Location<'static>,
) -> Naming {
    let described = std::any::type_name::<fn(&mut T, A) -> R>();
    Naming::Position { function: Nameable::new(Of::<T, A, R>::PLAIN, function), described, given_at }
}

/// The same for one that takes a context.
pub(super) fn with_context_by_position<T: 'static, A: Message, R: Message>(
    function: fn(&mut T, &Context<'_>, A) -> R,
    given_at: &'static Location<'static>,
) -> Naming {
    let described = std::any::type_name::<fn(&mut T, &Context<'_>, A) -> R>();
    Naming::Position { function: Nameable::new(Of::<T, A, R>::WITH_CONTEXT, function), described, given_at }
}
