/// A set, and what this thread knows of it.
pub(crate) struct Set {
    __head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Stored,
    __size: <Atomic<u64> as ::farfield::__private::Field>::Stored,
    /// How often this thread began anew.
    restarts: Cell<u64>,
    pub limit: u32,
    __this: ::farfield::__private::RemotePtr<Self>,
}
impl Set {
    /// The values of a new object: one for each field that has no default. Setters change the others.
    #[inline]
    #[allow(dead_code, clippy::too_many_arguments)]
    pub(crate) fn init(
        head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Init,
    ) -> SetInit {
        SetInit {
            head,
            size: <Atomic<u64> as ::farfield::__private::DefaultInit>::default_init(),
            __parameters: ::core::marker::PhantomData,
        }
    }
    /// Allocates an object at `site` and builds its image; publishing it, or `write`, is the one WRITE.
    /// No round trip, but for one FAA a chunk.
    #[allow(dead_code, clippy::missing_errors_doc)]
    pub(crate) async fn new_in<'a>(
        site: impl ::core::convert::Into<::farfield::__private::Site<'a>>,
        init: SetInit,
    ) -> ::farfield::__private::Result<::farfield::__private::Owned<Self>> {
        ::farfield::__private::new_in(site, init).await
    }
    /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
    #[allow(dead_code, clippy::missing_errors_doc)]
    pub(crate) async fn attach(
        ptr: ::farfield::__private::RemotePtr<Self>,
        ct: &::farfield::__private::ComputeThread,
    ) -> ::farfield::__private::Result<Self> {
        ::farfield::__private::attach(ptr, ct).await
    }
    /// Where the object is: `This` is for data, `self` is for code.
    #[inline]
    #[allow(dead_code)]
    pub(crate) fn this(&self) -> ::farfield::__private::RemotePtr<Self> {
        self.__this
    }
    ///`head` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn head(&self) -> <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Kept<'_> {
        <RemotePtr<Node<u64>> as ::farfield::__private::Field>::kept(&self.__head)
    }
    ///`size` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn size(&self) -> <Atomic<u64> as ::farfield::__private::Field>::Kept<'_> {
        <Atomic<u64> as ::farfield::__private::Field>::kept(&self.__size)
    }
}
///The layout of a [`Set`] in far memory.
#[repr(C, align(8))]
#[allow(dead_code)]
pub(crate) struct SetThis {
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Cell,
    size: <Atomic<u64> as ::farfield::__private::Field>::Cell,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
///The accessors of a [`Set`] in far memory; pointers to it dereference to this.
#[repr(transparent)]
pub(crate) struct SetFields(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<fn() -> ()>,
);
impl SetFields {
    ///The place of `head`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn head(&self) -> ::farfield::__private::Place<RemotePtr<Node<u64>>> {
        ::farfield::__private::place::<Set, RemotePtr<Node<u64>>, 0usize>(self.0)
    }
    ///The place of `size`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn size(&self) -> ::farfield::__private::Place<Atomic<u64>> {
        ::farfield::__private::place::<Set, Atomic<u64>, 1usize>(self.0)
    }
}
///The values to build a new [`Set`] from.
pub(crate) struct SetInit {
    ///What `head` starts as.
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Init,
    ///What `size` starts as.
    size: <Atomic<u64> as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
impl SetInit {
    ///Sets what `head` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn head(
        mut self,
        value: impl ::farfield::__private::Initial<
            <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.head = ::farfield::__private::Initial::into_init(value);
        self
    }
    ///Sets what `size` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn size(
        mut self,
        value: impl ::farfield::__private::Initial<
            <Atomic<u64> as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.size = ::farfield::__private::Initial::into_init(value);
        self
    }
}
///Every field of a [`Set`], from one READ.
#[allow(dead_code)]
pub(crate) struct SetSnapshot<'g> {
    ///What `head` held.
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Value<'g>,
    ///What `size` held.
    size: <Atomic<u64> as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<&'g ()>,
}
const _: () = {
    impl ::farfield::__private::Field for Set {
        type Cell = SetThis;
        type Init = SetInit;
        type Value<'g> = SetSnapshot<'g>;
        type Stored = Self;
        type Kept<'a> = &'a Self;
        const FINGERPRINT: u64 = ::farfield::__private::fingerprint_of::<Self>();
        const FROZEN: bool = ::farfield::__private::is_frozen::<Self>();
        const TAIL_STRIDE: usize = <Atomic<
            u64,
        > as ::farfield::__private::Field>::TAIL_STRIDE;
        const TAIL_OFFSET: usize = ::farfield::__private::tail_offset::<
            Self,
        >(<Atomic<u64> as ::farfield::__private::Field>::TAIL_OFFSET);
        fn tail_bytes(init: &Self::Init) -> usize {
            <Atomic<u64> as ::farfield::__private::Field>::tail_bytes(&init.size)
        }
        #[inline]
        fn encode(init: Self::Init, out: &mut [u8]) {
            <RemotePtr<
                Node<u64>,
            > as ::farfield::__private::Field>::encode(
                init.head,
                &mut out[::farfield::__private::offset::<Self, 0usize>()..],
            );
            <Atomic<
                u64,
            > as ::farfield::__private::Field>::encode(
                init.size,
                &mut out[::farfield::__private::offset::<Self, 1usize>()..],
            );
        }
        #[inline]
        fn decode<'g>(
            at: ::farfield::__private::Address,
            bytes: &[u8],
        ) -> ::farfield::__private::Result<Self::Value<'g>> {
            ::farfield::__private::Ok(SetSnapshot {
                head: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        0usize,
                    >(at, bytes);
                    <RemotePtr<
                        Node<u64>,
                    > as ::farfield::__private::Field>::decode(at, bytes)?
                },
                size: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        1usize,
                    >(at, bytes);
                    <Atomic<u64> as ::farfield::__private::Field>::decode(at, bytes)?
                },
                __guard: ::core::marker::PhantomData,
            })
        }
        fn store(
            at: ::farfield::__private::Address,
            bytes: &[u8],
        ) -> ::farfield::__private::Result<Self> {
            ::farfield::__private::Ok(Self {
                __head: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        0usize,
                    >(at, bytes);
                    <RemotePtr<
                        Node<u64>,
                    > as ::farfield::__private::Field>::store(at, bytes)?
                },
                __size: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        1usize,
                    >(at, bytes);
                    <Atomic<u64> as ::farfield::__private::Field>::store(at, bytes)?
                },
                restarts: ::core::default::Default::default(),
                limit: 7,
                __this: ::farfield::__private::RemotePtr::from_address(at),
            })
        }
        #[inline]
        fn kept(stored: &Self) -> &Self {
            stored
        }
    }
    impl ::farfield::__private::FrozenField for Set {}
    impl<'g> ::core::clone::Clone for SetSnapshot<'g> {
        fn clone(&self) -> Self {
            Self {
                head: ::core::clone::Clone::clone(&self.head),
                size: ::core::clone::Clone::clone(&self.size),
                __guard: ::core::marker::PhantomData,
            }
        }
    }
    impl<'g> ::core::fmt::Debug for SetSnapshot<'g> {
        fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
            f.debug_struct("SetSnapshot")
                .field("head", &self.head)
                .field("size", &self.size)
                .finish()
        }
    }
    unsafe impl ::farfield::__private::Remote for Set {
        type Fields = SetFields;
        const NAME: &'static str = "Set";
        const FIELDS: &'static [::farfield::__private::FieldInfo] = &[
            ::farfield::__private::FieldInfo::new(
                "head",
                ::core::mem::offset_of!(SetThis, head),
                <RemotePtr<Node<u64>> as ::farfield::__private::Field>::SHAPE,
            ),
            ::farfield::__private::FieldInfo::new(
                "size",
                ::core::mem::offset_of!(SetThis, size),
                <Atomic<u64> as ::farfield::__private::Field>::SHAPE,
            ),
        ];
    }
    const _: () = {
        <Set as ::farfield::__private::Remote>::PROVEN;
        ::core::assert!(::core::mem::align_of:: < SetThis > () >= 8usize);
    };
};
