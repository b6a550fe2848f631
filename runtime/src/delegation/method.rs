//! Methods of `#[delegated]` impls, each as a type of its own: what the macro generates, and the calls that it leads to.

use std::any::Any;
use std::fmt;

use super::context::{Context, Reaction};
use super::function::{CallRefused, Method, Naming, call};
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

/// A request of a method by delegated code: what the methods of `client.via(context)` return, for a client that [`#[delegated]`](macro@crate::delegated) generates.
///
/// As a [`Context`] has no `ComputeThread`, such a request is not awaited: nobody is told its result, or a closure is. The method is found by its interface, so the trustee
/// may run another build.
///
/// ```
/// use farfield::prelude::*;
///
/// #[derive(Default)]
/// pub struct Audit(Vec<String>);
///
/// #[delegated]
/// impl Audit {
///     pub fn write(&mut self, line: String) {
///         self.0.push(line);
///     }
///     pub fn lines(&self) -> Vec<String> {
///         self.0.clone()
///     }
/// }
///
/// pub struct Account(u64);
///
/// #[delegated]
/// impl Account {
///     /// Is executed by the account's trustee, and requests `write` from that of the audit.
///     pub fn deposit(&mut self, context: &Context<'_>, audit: AuditClient, amount: u64) -> u64 {
///         self.0 += amount;
///         // Fails only if nothing was requested.
///         let _ = audit.via(context).write(format!("+{amount}")).post();
///         self.0
///     }
/// }
///
/// # fn main() -> farfield::Result<()> {
/// Cluster::connect("local:")?.run(1, async |ct| {
///     let audit = AuditClient::entrust(ct, Audit::default()).await?;
///     let account = AccountClient::entrust(ct, Account(5)).await?;
///     assert_eq!(account.deposit(ct, audit.clone(), 2).await?, 7);
///     while audit.lines(ct).await? != ["+2"] {
///         ct.yield_now().await;
///     }
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is requested before `post` or `apply_then`"]
pub struct Request<'a, M: DelegatedMethod> {
    trust: &'a Trust<M::Of>,
    context: &'a Context<'a>,
    args: Args<M>,
}

impl<M: DelegatedMethod> Request<'_, M> {
    /// Makes the request, and does not wait: see [`Context::post`].
    ///
    /// # Errors
    /// Those of [`Context::post`].
    pub fn post(self) -> Result<()> {
        self.apply_then(|_, _| ())
    }

    /// Makes the request, and calls `then` with the result, on this thread, after this code has returned: see [`Context::apply_then`].
    ///
    /// # Errors
    /// Those of [`Context::post`]. `then` receives those that are known later.
    pub fn apply_then(self, then: impl FnOnce(Result<M::Output>, &Reaction<'_>) + 'static) -> Result<()> {
        let Self { trust, context, args } = self;
        trust.request(context.delegation, Naming::Method(const { &M::METHOD }), args, M::call, then)
    }
}

impl<M: DelegatedMethod> fmt::Debug for Request<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("method", &M::NAME).field("of", self.trust).finish_non_exhaustive()
    }
}

/// Makes a request of a method by delegated code.
pub fn through<'a, M: DelegatedMethod>(
    trust: &'a Trust<M::Of>,
    context: &'a Context<'a>,
    args: Args<M>,
) -> Request<'a, M> {
    Request { trust, context, args }
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
