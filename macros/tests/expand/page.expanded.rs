/// A page of records, as long as its writer asks for.
struct Page<const N: usize> {
    __header: <Header as ::farfield::__private::Field>::Stored,
    __counts: <::farfield::__private::Array<
        Atomic<u32>,
        { N },
    > as ::farfield::__private::Field>::Stored,
    __records: <Tail<u16> as ::farfield::__private::Field>::Stored,
    __this: ::farfield::__private::RemotePtr<Self>,
}
impl<const N: usize> Page<N> {
    /// The values of a new object: one for each field that has no default. Setters change the others.
    #[inline]
    #[allow(dead_code, clippy::too_many_arguments)]
    fn init(
        header: <Header as ::farfield::__private::Field>::Init,
        records: <Tail<u16> as ::farfield::__private::Field>::Init,
    ) -> PageInit<N> {
        PageInit {
            header,
            counts: <::farfield::__private::Array<
                Atomic<u32>,
                { N },
            > as ::farfield::__private::DefaultInit>::default_init(),
            records,
            __parameters: ::core::marker::PhantomData,
        }
    }
    /// Allocates an object at `site` and builds its image; publishing it, or `write`, is the one WRITE.
    /// No round trip, but for one FAA a chunk.
    #[allow(dead_code, clippy::missing_errors_doc)]
    async fn new_in<'a>(
        site: impl ::core::convert::Into<::farfield::__private::Site<'a>>,
        init: PageInit<N>,
    ) -> ::farfield::__private::Result<::farfield::__private::Owned<Self>> {
        ::farfield::__private::new_in(site, init).await
    }
    /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
    #[allow(dead_code, clippy::missing_errors_doc)]
    async fn attach(
        ptr: ::farfield::__private::RemotePtr<Self>,
        ct: &::farfield::__private::ComputeThread,
    ) -> ::farfield::__private::Result<Self> {
        ::farfield::__private::attach(ptr, ct).await
    }
    /// Where the object is: `This` is for data, `self` is for code.
    #[inline]
    #[allow(dead_code)]
    fn this(&self) -> ::farfield::__private::RemotePtr<Self> {
        self.__this
    }
    ///`header` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn header(&self) -> <Header as ::farfield::__private::Field>::Kept<'_> {
        <Header as ::farfield::__private::Field>::kept(&self.__header)
    }
    ///`counts` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn counts(
        &self,
    ) -> <::farfield::__private::Array<
        Atomic<u32>,
        { N },
    > as ::farfield::__private::Field>::Kept<'_> {
        <::farfield::__private::Array<
            Atomic<u32>,
            { N },
        > as ::farfield::__private::Field>::kept(&self.__counts)
    }
    ///`records` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn records(&self) -> <Tail<u16> as ::farfield::__private::Field>::Kept<'_> {
        <Tail<u16> as ::farfield::__private::Field>::kept(&self.__records)
    }
}
///The layout of a [`Page`] in far memory.
#[repr(C, align(64))]
#[allow(dead_code)]
struct PageThis<const N: usize> {
    header: <Header as ::farfield::__private::Field>::Cell,
    counts: <::farfield::__private::Array<
        Atomic<u32>,
        { N },
    > as ::farfield::__private::Field>::Cell,
    records: <Tail<u16> as ::farfield::__private::Field>::Cell,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
///The accessors of a [`Page`] in far memory; pointers to it dereference to this.
#[repr(transparent)]
struct PageFields<const N: usize>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<fn() -> ()>,
);
impl<const N: usize> PageFields<N> {
    ///The place of `header`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn header(&self) -> ::farfield::__private::Place<Header> {
        ::farfield::__private::place::<Page<N>, Header, 0usize>(self.0)
    }
    ///The place of `counts`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn counts(
        &self,
    ) -> ::farfield::__private::Place<::farfield::__private::Array<Atomic<u32>, { N }>> {
        ::farfield::__private::place::<
            Page<N>,
            ::farfield::__private::Array<Atomic<u32>, { N }>,
            1usize,
        >(self.0)
    }
    ///The place of `records`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn records(&self) -> ::farfield::__private::Place<Tail<u16>> {
        ::farfield::__private::place::<Page<N>, Tail<u16>, 2usize>(self.0)
    }
}
///The values to build a new [`Page`] from.
struct PageInit<const N: usize> {
    ///What `header` starts as.
    header: <Header as ::farfield::__private::Field>::Init,
    ///What `counts` starts as.
    counts: <::farfield::__private::Array<
        Atomic<u32>,
        { N },
    > as ::farfield::__private::Field>::Init,
    ///What `records` starts as.
    records: <Tail<u16> as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
impl<const N: usize> PageInit<N> {
    ///Sets what `header` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn header(
        mut self,
        value: impl ::farfield::__private::Initial<
            <Header as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.header = ::farfield::__private::Initial::into_init(value);
        self
    }
    ///Sets what `counts` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn counts(
        mut self,
        value: impl ::farfield::__private::Initial<
            <::farfield::__private::Array<
                Atomic<u32>,
                { N },
            > as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.counts = ::farfield::__private::Initial::into_init(value);
        self
    }
    ///Sets what `records` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn records(
        mut self,
        value: impl ::farfield::__private::Initial<
            <Tail<u16> as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.records = ::farfield::__private::Initial::into_init(value);
        self
    }
}
///Every field of a [`Page`], from one READ.
#[allow(dead_code)]
struct PageSnapshot<'g, const N: usize> {
    ///What `header` held.
    header: <Header as ::farfield::__private::Field>::Value<'g>,
    ///What `counts` held.
    counts: <::farfield::__private::Array<
        Atomic<u32>,
        { N },
    > as ::farfield::__private::Field>::Value<'g>,
    ///What `records` held.
    records: <Tail<u16> as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<&'g ()>,
}
const _: () = {
    impl<const N: usize> ::farfield::__private::Field for Page<N> {
        type Cell = PageThis<N>;
        type Init = PageInit<N>;
        type Value<'g> = PageSnapshot<'g, N>;
        type Stored = Self;
        type Kept<'a> = &'a Self;
        const FINGERPRINT: u64 = ::farfield::__private::fingerprint_of::<Self>();
        const FROZEN: bool = ::farfield::__private::is_frozen::<Self>();
        const TAIL_STRIDE: usize = <Tail<
            u16,
        > as ::farfield::__private::Field>::TAIL_STRIDE;
        const TAIL_OFFSET: usize = ::farfield::__private::tail_offset::<
            Self,
        >(<Tail<u16> as ::farfield::__private::Field>::TAIL_OFFSET);
        fn tail_bytes(init: &Self::Init) -> usize {
            <Tail<u16> as ::farfield::__private::Field>::tail_bytes(&init.records)
        }
        #[inline]
        fn encode(init: Self::Init, out: &mut [u8]) {
            <Header as ::farfield::__private::Field>::encode(
                init.header,
                &mut out[::farfield::__private::offset::<Self, 0usize>()..],
            );
            <::farfield::__private::Array<
                Atomic<u32>,
                { N },
            > as ::farfield::__private::Field>::encode(
                init.counts,
                &mut out[::farfield::__private::offset::<Self, 1usize>()..],
            );
            <Tail<
                u16,
            > as ::farfield::__private::Field>::encode(
                init.records,
                &mut out[::farfield::__private::offset::<Self, 2usize>()..],
            );
        }
        #[inline]
        fn decode<'g>(
            at: ::farfield::__private::Address,
            bytes: &[u8],
        ) -> ::farfield::__private::Result<Self::Value<'g>> {
            ::farfield::__private::Ok(PageSnapshot {
                header: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        0usize,
                    >(at, bytes);
                    <Header as ::farfield::__private::Field>::decode(at, bytes)?
                },
                counts: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        1usize,
                    >(at, bytes);
                    <::farfield::__private::Array<
                        Atomic<u32>,
                        { N },
                    > as ::farfield::__private::Field>::decode(at, bytes)?
                },
                records: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        2usize,
                    >(at, bytes);
                    <Tail<u16> as ::farfield::__private::Field>::decode(at, bytes)?
                },
                __guard: ::core::marker::PhantomData,
            })
        }
        fn store(
            at: ::farfield::__private::Address,
            bytes: &[u8],
        ) -> ::farfield::__private::Result<Self> {
            ::farfield::__private::Ok(Self {
                __header: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        0usize,
                    >(at, bytes);
                    <Header as ::farfield::__private::Field>::store(at, bytes)?
                },
                __counts: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        1usize,
                    >(at, bytes);
                    <::farfield::__private::Array<
                        Atomic<u32>,
                        { N },
                    > as ::farfield::__private::Field>::store(at, bytes)?
                },
                __records: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        2usize,
                    >(at, bytes);
                    <Tail<u16> as ::farfield::__private::Field>::store(at, bytes)?
                },
                __this: ::farfield::__private::RemotePtr::from_address(at),
            })
        }
        #[inline]
        fn kept(stored: &Self) -> &Self {
            stored
        }
    }
    impl<const N: usize> ::farfield::__private::FrozenField for Page<N> {}
    impl<'g, const N: usize> ::core::clone::Clone for PageSnapshot<'g, N> {
        fn clone(&self) -> Self {
            Self {
                header: ::core::clone::Clone::clone(&self.header),
                counts: ::core::clone::Clone::clone(&self.counts),
                records: ::core::clone::Clone::clone(&self.records),
                __guard: ::core::marker::PhantomData,
            }
        }
    }
    impl<'g, const N: usize> ::core::fmt::Debug for PageSnapshot<'g, N> {
        fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
            f.debug_struct("PageSnapshot")
                .field("header", &self.header)
                .field("counts", &self.counts)
                .field("records", &self.records)
                .finish()
        }
    }
    unsafe impl<const N: usize> ::farfield::__private::Remote for Page<N> {
        type Fields = PageFields<N>;
        const NAME: &'static str = "Page";
        const FIELDS: &'static [::farfield::__private::FieldInfo] = &[
            ::farfield::__private::FieldInfo::new(
                "header",
                ::core::mem::offset_of!(PageThis < N >, header),
                <Header as ::farfield::__private::Field>::SHAPE,
            ),
            ::farfield::__private::FieldInfo::new(
                "counts",
                ::core::mem::offset_of!(PageThis < N >, counts),
                <::farfield::__private::Array<
                    Atomic<u32>,
                    { N },
                > as ::farfield::__private::Field>::SHAPE,
            ),
            ::farfield::__private::FieldInfo::new(
                "records",
                ::core::mem::offset_of!(PageThis < N >, records),
                <Tail<u16> as ::farfield::__private::Field>::SHAPE,
            ),
        ];
    }
};
