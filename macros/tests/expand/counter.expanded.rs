impl Counter {
    /// Adds to the counter.
    pub fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }
    fn forward(&self, context: &Context<'_>, log: Trust<Log>) {
        let _ = context.post(&log, self.0, Log::push);
    }
    pub(crate) fn new() -> Self {
        Self(0)
    }
}
/// A client of a [`Counter`]: requests its methods of the thread that has it.
#[allow(dead_code)]
pub struct CounterClient(::farfield::Trust<Counter>);
/// Requests of [`CounterClient`]'s methods by delegated code: made by its function `via`.
#[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
#[allow(dead_code)]
pub struct CounterRequests<'__via>(
    &'__via ::farfield::Trust<Counter>,
    &'__via ::farfield::Context<'__via>,
);
#[allow(
    dead_code,
    deprecated,
    non_camel_case_types,
    clippy::missing_errors_doc,
    clippy::should_implement_trait,
    clippy::too_many_arguments,
    clippy::wrong_self_convention
)]
const _: () = {
    use ::farfield::__private::delegation as __de;
    struct __add(::core::marker::PhantomData<fn() -> Counter>);
    impl __de::DelegatedMethod for __add {
        type Of = Counter;
        type A = u64;
        type B = ();
        type C = ();
        type D = ();
        type E = ();
        type F = ();
        type Output = u64;
        const NAME: &'static str = "Counter::add";
        const IS_MUT: bool = true;
        fn call(
            value: &mut Counter,
            _: &::farfield::Context<'_>,
            (n, (), (), (), (), ()): __de::Args<Self>,
        ) -> Self::Output {
            <Counter>::add(value, n)
        }
    }
    struct __forward(::core::marker::PhantomData<fn() -> Counter>);
    impl __de::DelegatedMethod for __forward {
        type Of = Counter;
        type A = Trust<Log>;
        type B = ();
        type C = ();
        type D = ();
        type E = ();
        type F = ();
        type Output = ();
        const NAME: &'static str = "Counter::forward";
        const IS_MUT: bool = false;
        fn call(
            value: &mut Counter,
            context: &::farfield::Context<'_>,
            (log, (), (), (), (), ()): __de::Args<Self>,
        ) -> Self::Output {
            <Counter>::forward(value, context, log)
        }
    }
    impl __de::Delegated for Counter {
        const METHODS: &'static [__de::Method] = &[
            <__add as __de::DelegatedMethod>::METHOD,
            <__forward as __de::DelegatedMethod>::METHOD,
        ];
    }
    impl CounterClient {
        /// Gives a value to this thread, its trustee, and returns the first client of it. See `ComputeThread::entrust`.
        pub async fn entrust(
            ct: &::farfield::ComputeThread,
            value: Counter,
        ) -> ::farfield::Result<Self> {
            ct.entrust_delegated(value).await.map(Self)
        }
        /// Makes a client of a handle that is stored in far memory. See `Trust::open`.
        pub async fn open(
            stored: ::farfield::RemotePtr<::farfield::StoredTrust<Counter>>,
            ct: &::farfield::ComputeThread,
        ) -> ::farfield::Result<Self> {
            ::farfield::Trust::open(stored, ct).await.map(Self)
        }
        /// Returns the methods for delegated code, which requests through a context.
        #[must_use]
        pub fn via<'__via>(
            &'__via self,
            context: &'__via ::farfield::Context<'_>,
        ) -> CounterRequests<'__via> {
            CounterRequests(&self.0, context)
        }
        /// Adds to the counter.
        pub async fn add(
            &self,
            ct: &::farfield::ComputeThread,
            n: u64,
        ) -> ::farfield::Result<u64> {
            __de::request::<__add>(&self.0, ct, (n, (), (), (), (), ())).await
        }
        async fn forward(
            &self,
            ct: &::farfield::ComputeThread,
            log: Trust<Log>,
        ) -> ::farfield::Result<()> {
            __de::request::<__forward>(&self.0, ct, (log, (), (), (), (), ())).await
        }
    }
    impl<'__via> CounterRequests<'__via> {
        /// Adds to the counter.
        pub fn add(
            self,
            n: u64,
        ) -> ::farfield::Request<'__via, impl __de::DelegatedMethod<Output = u64>> {
            __de::through::<__add>(self.0, self.1, (n, (), (), (), (), ()))
        }
        fn forward(
            self,
            log: Trust<Log>,
        ) -> ::farfield::Request<'__via, impl __de::DelegatedMethod<Output = ()>> {
            __de::through::<__forward>(self.0, self.1, (log, (), (), (), (), ()))
        }
    }
    impl ::core::clone::Clone for CounterClient {
        fn clone(&self) -> Self {
            Self(::core::clone::Clone::clone(&self.0))
        }
    }
    impl ::core::fmt::Debug for CounterClient {
        fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
            f.debug_tuple("CounterClient").field(&self.0).finish()
        }
    }
    impl ::core::convert::From<::farfield::Trust<Counter>> for CounterClient {
        fn from(trust: ::farfield::Trust<Counter>) -> Self {
            Self(trust)
        }
    }
    impl ::core::convert::From<CounterClient> for ::farfield::Trust<Counter> {
        fn from(client: CounterClient) -> Self {
            client.0
        }
    }
    impl ::core::ops::Deref for CounterClient {
        type Target = ::farfield::Trust<Counter>;
        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }
    impl __de::Message for CounterClient {
        const FINGERPRINT: u64 = <::farfield::Trust<
            Counter,
        > as __de::Message>::FINGERPRINT;
        fn write(self, to: &mut __de::Writer<'_>) {
            __de::Message::write(self.0, to);
        }
        fn read(from: &mut __de::Reader<'_>) -> ::core::option::Option<Self> {
            <::farfield::Trust<Counter> as __de::Message>::read(from).map(Self)
        }
    }
};
