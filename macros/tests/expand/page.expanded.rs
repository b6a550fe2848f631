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
/// The accessors of a [`Page`] in far memory; pointers to it dereference to this.
#[repr(transparent)]
struct PageFields<'g, const N: usize>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<(&'g (), fn() -> ())>,
);
/// The values to build a new [`Page`] from.
#[must_use]
struct PageInit<const N: usize> {
    /// What `header` starts as.
    header: <Header as ::farfield::__private::Field>::Init,
    /// What `counts` starts as.
    counts: <::farfield::Array<Atomic<u32>, N> as ::farfield::__private::Field>::Init,
    /// What `records` starts as.
    records: <Tail<u16> as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
/// Every field of a [`Page`], from one READ.
#[allow(dead_code)]
struct PageSnapshot<'g, const N: usize> {
    /// What `header` held.
    header: <Header as ::farfield::__private::Field>::Value<'g>,
    /// What `counts` held.
    counts: <::farfield::Array<
        Atomic<u32>,
        N,
    > as ::farfield::__private::Field>::Value<'g>,
    /// What `records` held.
    records: <Tail<u16> as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<(&'g (), fn() -> ())>,
}
#[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
const _: () = {
    use ::farfield::__private as __ff;
    impl<const N: usize> Page<N> {
        /// The values of a new object: one for each field that has no default. Setters change the others.
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
        /// Allocates an object and builds its image. Publishing it, or `write`, is the one WRITE.
        async fn new_in<'a>(
            site: impl ::core::convert::Into<__ff::Site<'a>>,
            init: PageInit<N>,
        ) -> __ff::Result<__ff::Owned<Self>> {
            __ff::new_in(site, init).await
        }
        /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
        async fn attach(
            ptr: __ff::RemotePtr<Self>,
            ct: &__ff::ComputeThread,
        ) -> __ff::Result<Self> {
            __ff::attach(ptr, ct).await
        }
        /// Where the object is: `This` is for data, `self` is for code.
        fn this(&self) -> __ff::RemotePtr<Self> {
            self.__this
        }
        /// `header` if it is frozen, as read on `attach`; else its place. No round trip.
        fn header(&self) -> <Header as __ff::Field>::Kept<'_> {
            <Header as __ff::Field>::kept(&self.header)
        }
        /// `counts` if it is frozen, as read on `attach`; else its place. No round trip.
        fn counts(
            &self,
        ) -> <::farfield::Array<Atomic<u32>, N> as __ff::Field>::Kept<'_> {
            <::farfield::Array<Atomic<u32>, N> as __ff::Field>::kept(&self.counts)
        }
        /// `records` if it is frozen, as read on `attach`; else its place. No round trip.
        fn records(&self) -> <Tail<u16> as __ff::Field>::Kept<'_> {
            <Tail<u16> as __ff::Field>::kept(&self.records)
        }
    }
    impl<'g, const N: usize> PageFields<'g, N> {
        /// The place of `header`. No round trip.
        fn header(&self) -> __ff::Place<'g, Header> {
            __ff::place::<Page<N>, Header, 0>(self.0)
        }
        /// The place of `counts`. No round trip.
        fn counts(&self) -> __ff::Place<'g, ::farfield::Array<Atomic<u32>, N>> {
            __ff::place::<Page<N>, ::farfield::Array<Atomic<u32>, N>, 1>(self.0)
        }
        /// The place of `records`. No round trip.
        fn records(&self) -> __ff::Place<'g, Tail<u16>> {
            __ff::place::<Page<N>, Tail<u16>, 2>(self.0)
        }
    }
    impl<const N: usize> PageInit<N> {
        /// Sets what `counts` starts as.
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
