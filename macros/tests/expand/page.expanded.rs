/// A page of records, as long as its writer asks for.
struct Page<const N: usize> {
    header: <Header as ::farfield::__private::Field>::Stored,
    counts: <::farfield::Array<Atomic<u32>, N> as ::farfield::__private::Field>::Stored,
    records: <Tail<u16> as ::farfield::__private::Field>::Stored,
    __this: ::farfield::__private::RemotePtr<Self>,
}
/// The layout of a [`Page`] in far memory.
#[repr(C, align(64))]
#[allow(dead_code)]
struct PageThis<const N: usize> {
    header: <Header as ::farfield::__private::Field>::Cell,
    counts: <::farfield::Array<Atomic<u32>, N> as ::farfield::__private::Field>::Cell,
    records: <Tail<u16> as ::farfield::__private::Field>::Cell,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
/// The accessors of a [`Page`] in far memory. Pointers to it dereference to this type.
#[repr(transparent)]
struct PageFields<'g, const N: usize>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<(&'g (), fn() -> ())>,
);
/// The initial values of a new [`Page`].
#[must_use]
struct PageInit<const N: usize> {
    /// The initial value of `header`.
    header: <Header as ::farfield::__private::Field>::Init,
    /// The initial value of `counts`.
    counts: <::farfield::Array<Atomic<u32>, N> as ::farfield::__private::Field>::Init,
    /// The initial value of `records`.
    records: <Tail<u16> as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
/// The values of all fields of a [`Page`], from one READ.
#[allow(dead_code)]
struct PageSnapshot<'g, const N: usize> {
    /// The value of `header` when it was read.
    header: <Header as ::farfield::__private::Field>::Value<'g>,
    /// The value of `counts` when it was read.
    counts: <::farfield::Array<
        Atomic<u32>,
        N,
    > as ::farfield::__private::Field>::Value<'g>,
    /// The value of `records` when it was read.
    records: <Tail<u16> as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<(&'g (), fn() -> ())>,
}
#[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
const _: () = {
    use ::farfield::__private as __ff;
    impl<const N: usize> Page<N> {
        /// Returns the initial values of a new object: an argument for each field without a default, and setters for the others.
        fn init(
            header: <Header as __ff::Field>::Init,
            records: <Tail<u16> as __ff::Field>::Init,
        ) -> PageInit<N> {
            PageInit {
                header,
                counts: <::farfield::Array<
                    Atomic<u32>,
                    N,
                > as __ff::DefaultInit>::default_init(),
                records,
                __parameters: ::core::marker::PhantomData,
            }
        }
        /// Allocates an object, whose image stays in local memory until it is published or written by `write`: one WRITE.
        #[inline]
        fn new_in<'a>(
            site: impl ::core::convert::Into<__ff::Site<'a>>,
            init: PageInit<N>,
        ) -> __ff::NewObject<'a, Self> {
            __ff::new_in(site, init)
        }
        /// Returns a handle to the object at `ptr`. One READ for the frozen fields; none if there are none.
        async fn attach(
            ptr: __ff::RemotePtr<Self>,
            ct: &__ff::ComputeThread,
        ) -> __ff::Result<Self> {
            __ff::attach(ptr, ct).await
        }
        /// Returns the pointer to the object in far memory: `This` is for data, `self` is for code.
        fn this(&self) -> __ff::RemotePtr<Self> {
            self.__this
        }
        /// Returns the value of `header` that `attach` read if the field is frozen, else its place. No round trip.
        fn header(&self) -> <Header as __ff::Field>::Kept<'_> {
            <Header as __ff::Field>::kept(&self.header)
        }
        /// Returns the value of `counts` that `attach` read if the field is frozen, else its place. No round trip.
        fn counts(
            &self,
        ) -> <::farfield::Array<Atomic<u32>, N> as __ff::Field>::Kept<'_> {
            <::farfield::Array<Atomic<u32>, N> as __ff::Field>::kept(&self.counts)
        }
        /// Returns the value of `records` that `attach` read if the field is frozen, else its place. No round trip.
        fn records(&self) -> <Tail<u16> as __ff::Field>::Kept<'_> {
            <Tail<u16> as __ff::Field>::kept(&self.records)
        }
    }
    impl<'g, const N: usize> PageFields<'g, N> {
        /// Returns the place of `header`. No round trip.
        fn header(&self) -> __ff::Place<'g, Header> {
            __ff::place::<Page<N>, Header, 0>(self.0)
        }
        /// Returns the place of `counts`. No round trip.
        fn counts(&self) -> __ff::Place<'g, ::farfield::Array<Atomic<u32>, N>> {
            __ff::place::<Page<N>, ::farfield::Array<Atomic<u32>, N>, 1>(self.0)
        }
        /// Returns the place of `records`. No round trip.
        fn records(&self) -> __ff::Place<'g, Tail<u16>> {
            __ff::place::<Page<N>, Tail<u16>, 2>(self.0)
        }
    }
    impl<const N: usize> PageInit<N> {
        /// Sets the initial value of `counts`.
        fn counts(
            mut self,
            value: impl __ff::Initial<__ff::Init<::farfield::Array<Atomic<u32>, N>>>,
        ) -> Self {
            self.counts = __ff::Initial::into_init(value);
            self
        }
    }
    __ff::implement! {
        impl [const N : usize] for Page[N] []; PageThis PageFields PageInit
        PageSnapshot['g,]; { header 0 : [< Header as __ff::Field > ::encode] [< Header as
        __ff::Field > ::decode] [< Header as __ff::Field > ::store] [< Header as
        __ff::Field > ::SHAPE]; counts 1 : [< ::farfield::Array < Atomic < u32 >, N > as
        __ff::Field > ::encode] [< ::farfield::Array < Atomic < u32 >, N > as __ff::Field
        > ::decode] [< ::farfield::Array < Atomic < u32 >, N > as __ff::Field > ::store]
        [< ::farfield::Array < Atomic < u32 >, N > as __ff::Field > ::SHAPE]; records 2 :
        [< Tail < u16 > as __ff::Field > ::encode] [< Tail < u16 > as __ff::Field >
        ::decode] [< Tail < u16 > as __ff::Field > ::store] [< Tail < u16 > as
        __ff::Field > ::SHAPE]; } {} records[< Tail < u16 > as __ff::Field >
        ::tail_bytes] [< Tail < u16 > as __ff::Field > ::SHAPE] {}
    }
};
