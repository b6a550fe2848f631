//! Methods of `#[delegated]` impls, each as a type of its own: what the macro generates, and the calls that it leads to.

use std::any::Any;

use super::context::Context;
use super::function::{CallRefused, Method, call};
use super::trust::Trust;
use crate::error::Result;
use crate::session::ComputeThread;
use farfield_words::{Message, Reader, Writer, fingerprint};

/// A method of a `#[delegated]` impl.
pub trait DelegatedMethod: Sized + 'static {
    /// The type of the impl.
    type Of: 'static;
    /// The first argument, not counting a context; `()` if there is none. Each is a type of its own, so that an error names it.
    type A: Message;
    /// The second argument.
    type B: Message;
    /// The third argument.
    type C: Message;
    /// The fourth argument.
    type D: Message;
    /// The fifth argument.
    type E: Message;
    /// The sixth argument.
    type F: Message;
    /// The type of the result.
    type Output: Message;
    /// The names of the type and of the method: `Counter::add`.
    const NAME: &'static str;
    /// True if the method takes `&mut self`.
    const IS_MUT: bool;

    /// Calls the method.
    fn call(value: &mut Self::Of, context: &Context<'_>, args: Args<Self>) -> Self::Output;

    /// The method in the table of its type. Its fingerprint depends on the method's interface only: names, `&self` or `&mut self`, and types.
    const METHOD: Method = {
        let receiver = fingerprint::number(fingerprint::name(Self::NAME), Self::IS_MUT as u64);
        let types = [<Args<Self> as Message>::FINGERPRINT, Self::Output::FINGERPRINT];
        let interface = fingerprint::number(fingerprint::number(receiver, types[0]), types[1]);
        Method::new(Self::NAME, interface, shim::<Self>)
    };
}

/// The arguments of a method.
pub type Args<M> = (
    <M as DelegatedMethod>::A,
    <M as DelegatedMethod>::B,
    <M as DelegatedMethod>::C,
    <M as DelegatedMethod>::D,
    <M as DelegatedMethod>::E,
    <M as DelegatedMethod>::F,
);

fn shim<M: DelegatedMethod>(
    value: &mut dyn Any,
    context: &Context<'_>,
    args: &mut Reader<'_>,
    result: &mut Writer<'_>,
) -> Result<(), CallRefused> {
    call::<M::Of, Args<M>, M::Output>(value, args, result, |value, args| M::call(value, context, args))
}

/// Requests a method of a value's trustee.
pub async fn request<M: DelegatedMethod>(
    trust: &Trust<M::Of>,
    ct: &ComputeThread,
    args: Args<M>,
) -> Result<M::Output> {
    trust.call_method(ct, const { &M::METHOD }, args, M::call).await
}

#[cfg(test)]
mod tests {
    use crate::delegation::Delegated;

    struct Counter(u64);

    #[farfield_macros::delegated]
    impl Counter {
        fn add(&mut self, n: u64) -> u64 {
            self.0 += n;
            self.0
        }
        fn get(&self) -> u64 {
            self.0
        }
        fn set(&mut self, value: u64) {
            self.0 = value;
        }
        fn more(&mut self) {
            self.0 += 1;
        }
        fn r#type(&self) -> bool {
            self.0 > 0
        }
    }

    /// The same type in another build.
    mod other_build {
        pub(super) struct Counter([u64; 1]);

        #[farfield_macros::delegated]
        impl Counter {
            /// Other positions, names of arguments and code.
            fn r#type(&self) -> bool {
                self.0[0] > 1
            }
            fn add(&mut self, by: u64) -> u64 {
                self.0[0] += by + 1;
                self.0[0]
            }
            /// Another receiver.
            fn get(&mut self) -> u64 {
                self.0[0]
            }
            /// Another argument.
            fn set(&mut self, value: u32) {
                self.0[0] = u64::from(value);
            }
            /// Another result.
            fn more(&mut self) -> u64 {
                self.0[0]
            }
        }
    }

    #[test]
    fn the_fingerprint_of_a_method_is_that_of_its_interface() {
        let here = Counter::METHODS.iter().map(|method| (method.name, method.fingerprint));
        let there: Vec<_> =
            other_build::Counter::METHODS.iter().map(|method| (method.name, method.fingerprint)).collect();
        let shared: Vec<_> = here.filter(|method| there.contains(method)).map(|(name, _)| name).collect();
        assert_eq!(shared, ["Counter::add", "Counter::type"]);
    }
}
