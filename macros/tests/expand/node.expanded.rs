/// A node of a sorted list.
pub struct Node<K: Word> {
    __key: <K as ::farfield::__private::Field>::Stored,
    __next: <Link<Node<K>> as ::farfield::__private::Field>::Stored,
    __lock: <Lock as ::farfield::__private::Field>::Stored,
    __this: ::farfield::__private::RemotePtr<Self>,
}
impl<K: Word> Node<K> {
    /// The values of a new object: one for each field that has no default. Setters change the others.
    #[inline]
    #[allow(dead_code, clippy::too_many_arguments)]
    pub fn init(key: K) -> NodeInit<K> {
        NodeInit {
            key,
            next: <Link<Node<K>> as ::farfield::__private::DefaultInit>::default_init(),
            lock: <Lock as ::farfield::__private::DefaultInit>::default_init(),
            __parameters: ::core::marker::PhantomData,
        }
    }
    /// Allocates an object at `site` and builds its image; publishing it, or `write`, is the one WRITE.
    /// No round trip, but for one FAA a chunk.
    #[allow(dead_code, clippy::missing_errors_doc)]
    pub async fn new_in<'a>(
        site: impl ::core::convert::Into<::farfield::__private::Site<'a>>,
        init: NodeInit<K>,
    ) -> ::farfield::__private::Result<::farfield::__private::Owned<Self>> {
        ::farfield::__private::new_in(site, init).await
    }
    /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
    #[allow(dead_code, clippy::missing_errors_doc)]
    pub async fn attach(
        ptr: ::farfield::__private::RemotePtr<Self>,
        ct: &::farfield::__private::ComputeThread,
    ) -> ::farfield::__private::Result<Self> {
        ::farfield::__private::attach(ptr, ct).await
    }
    /// Where the object is: `This` is for data, `self` is for code.
    #[inline]
    #[allow(dead_code)]
    pub fn this(&self) -> ::farfield::__private::RemotePtr<Self> {
        self.__this
    }
    /// Orders the nodes.
    ///`key` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    pub fn key(&self) -> <K as ::farfield::__private::Field>::Kept<'_> {
        <K as ::farfield::__private::Field>::kept(&self.__key)
    }
    ///`next` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn next(&self) -> <Link<Node<K>> as ::farfield::__private::Field>::Kept<'_> {
        <Link<Node<K>> as ::farfield::__private::Field>::kept(&self.__next)
    }
    ///`lock` if it is frozen, as read on `attach`; else its place. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn lock(&self) -> <Lock as ::farfield::__private::Field>::Kept<'_> {
        <Lock as ::farfield::__private::Field>::kept(&self.__lock)
    }
}
///The layout of a [`Node`] in far memory.
#[repr(C, align(8))]
#[allow(dead_code)]
pub struct NodeThis<K: Word> {
    key: <K as ::farfield::__private::Field>::Cell,
    next: <Link<Node<K>> as ::farfield::__private::Field>::Cell,
    lock: <Lock as ::farfield::__private::Field>::Cell,
    __parameters: ::core::marker::PhantomData<fn() -> (K,)>,
}
///The accessors of a [`Node`] in far memory; pointers to it dereference to this.
#[repr(transparent)]
pub struct NodeFields<K: Word>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<fn() -> (K,)>,
);
impl<K: Word> NodeFields<K> {
    /// Orders the nodes.
    ///The place of `key`. No round trip.
    #[inline]
    #[allow(dead_code)]
    pub fn key(&self) -> ::farfield::__private::Place<K> {
        ::farfield::__private::place::<Node<K>, K, 0usize>(self.0)
    }
    ///The place of `next`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn next(&self) -> ::farfield::__private::Place<Link<Node<K>>> {
        ::farfield::__private::place::<Node<K>, Link<Node<K>>, 1usize>(self.0)
    }
    ///The place of `lock`. No round trip.
    #[inline]
    #[allow(dead_code)]
    fn lock(&self) -> ::farfield::__private::Place<Lock> {
        ::farfield::__private::place::<Node<K>, Lock, 2usize>(self.0)
    }
}
///The values to build a new [`Node`] from.
pub struct NodeInit<K: Word> {
    /// Orders the nodes.
    ///What `key` starts as.
    pub key: <K as ::farfield::__private::Field>::Init,
    ///What `next` starts as.
    next: <Link<Node<K>> as ::farfield::__private::Field>::Init,
    ///What `lock` starts as.
    lock: <Lock as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> (K,)>,
}
impl<K: Word> NodeInit<K> {
    ///Sets what `key` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    pub fn key(
        mut self,
        value: impl ::farfield::__private::Initial<
            <K as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.key = ::farfield::__private::Initial::into_init(value);
        self
    }
    ///Sets what `next` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn next(
        mut self,
        value: impl ::farfield::__private::Initial<
            <Link<Node<K>> as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.next = ::farfield::__private::Initial::into_init(value);
        self
    }
    ///Sets what `lock` starts as.
    #[must_use]
    #[inline]
    #[allow(dead_code)]
    fn lock(
        mut self,
        value: impl ::farfield::__private::Initial<
            <Lock as ::farfield::__private::Field>::Init,
        >,
    ) -> Self {
        self.lock = ::farfield::__private::Initial::into_init(value);
        self
    }
}
///Every field of a [`Node`], from one READ.
#[allow(dead_code)]
pub struct NodeSnapshot<'g, K: Word> {
    /// Orders the nodes.
    ///What `key` held.
    pub key: <K as ::farfield::__private::Field>::Value<'g>,
    ///What `next` held.
    next: <Link<Node<K>> as ::farfield::__private::Field>::Value<'g>,
    ///What `lock` held.
    lock: <Lock as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<&'g ()>,
}
///The named marks of the links in [`Node`].
#[allow(dead_code)]
pub trait NodeMarks: ::core::marker::Sized {
    ///Whether the mark `deleted` is set.
    fn is_deleted(&self) -> bool;
    ///The same address and marks, with `deleted` set.
    #[must_use]
    fn with_deleted(self) -> Self;
    ///The same address and marks, without `deleted`.
    #[must_use]
    fn without_deleted(self) -> Self;
}
impl<T: ::farfield::__private::Remote> NodeMarks
for ::farfield::__private::Shared<'_, T> {
    #[inline]
    fn is_deleted(&self) -> bool {
        self.marks() & 1 != 0
    }
    #[inline]
    fn with_deleted(self) -> Self {
        self.with_marks(self.marks() | 1)
    }
    #[inline]
    fn without_deleted(self) -> Self {
        self.with_marks(self.marks() & !1)
    }
}
const _: () = {
    impl<K: Word> ::farfield::__private::Field for Node<K> {
        type Cell = NodeThis<K>;
        type Init = NodeInit<K>;
        type Value<'g> = NodeSnapshot<'g, K>;
        type Stored = Self;
        type Kept<'a> = &'a Self;
        const FINGERPRINT: u64 = ::farfield::__private::fingerprint_of::<Self>();
        const FROZEN: bool = ::farfield::__private::is_frozen::<Self>();
        const TAIL_STRIDE: usize = <Lock as ::farfield::__private::Field>::TAIL_STRIDE;
        const TAIL_OFFSET: usize = ::farfield::__private::tail_offset::<
            Self,
        >(<Lock as ::farfield::__private::Field>::TAIL_OFFSET);
        fn tail_bytes(init: &Self::Init) -> usize {
            <Lock as ::farfield::__private::Field>::tail_bytes(&init.lock)
        }
        #[inline]
        fn encode(init: Self::Init, out: &mut [u8]) {
            <K as ::farfield::__private::Field>::encode(
                init.key,
                &mut out[::farfield::__private::offset::<Self, 0usize>()..],
            );
            <Link<
                Node<K>,
            > as ::farfield::__private::Field>::encode(
                init.next,
                &mut out[::farfield::__private::offset::<Self, 1usize>()..],
            );
            <Lock as ::farfield::__private::Field>::encode(
                init.lock,
                &mut out[::farfield::__private::offset::<Self, 2usize>()..],
            );
        }
        #[inline]
        fn decode<'g>(
            at: ::farfield::__private::Address,
            bytes: &[u8],
        ) -> ::farfield::__private::Result<Self::Value<'g>> {
            ::farfield::__private::Ok(NodeSnapshot {
                key: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        0usize,
                    >(at, bytes);
                    <K as ::farfield::__private::Field>::decode(at, bytes)?
                },
                next: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        1usize,
                    >(at, bytes);
                    <Link<Node<K>> as ::farfield::__private::Field>::decode(at, bytes)?
                },
                lock: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        2usize,
                    >(at, bytes);
                    <Lock as ::farfield::__private::Field>::decode(at, bytes)?
                },
                __guard: ::core::marker::PhantomData,
            })
        }
        fn store(
            at: ::farfield::__private::Address,
            bytes: &[u8],
        ) -> ::farfield::__private::Result<Self> {
            ::farfield::__private::Ok(Self {
                __key: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        0usize,
                    >(at, bytes);
                    <K as ::farfield::__private::Field>::store(at, bytes)?
                },
                __next: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        1usize,
                    >(at, bytes);
                    <Link<Node<K>> as ::farfield::__private::Field>::store(at, bytes)?
                },
                __lock: {
                    let (at, bytes) = ::farfield::__private::part::<
                        Self,
                        2usize,
                    >(at, bytes);
                    <Lock as ::farfield::__private::Field>::store(at, bytes)?
                },
                __this: ::farfield::__private::RemotePtr::from_address(at),
            })
        }
        #[inline]
        fn kept(stored: &Self) -> &Self {
            stored
        }
    }
    impl<K: Word> ::farfield::__private::FrozenField for Node<K> {}
    impl<'g, K: Word> ::core::clone::Clone for NodeSnapshot<'g, K> {
        fn clone(&self) -> Self {
            Self {
                key: ::core::clone::Clone::clone(&self.key),
                next: ::core::clone::Clone::clone(&self.next),
                lock: ::core::clone::Clone::clone(&self.lock),
                __guard: ::core::marker::PhantomData,
            }
        }
    }
    impl<'g, K: Word> ::core::fmt::Debug for NodeSnapshot<'g, K> {
        fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
            f.debug_struct("NodeSnapshot")
                .field("key", &self.key)
                .field("next", &self.next)
                .field("lock", &self.lock)
                .finish()
        }
    }
    unsafe impl<K: Word> ::farfield::__private::Remote for Node<K> {
        type Fields = NodeFields<K>;
        const NAME: &'static str = "Node";
        const FIELDS: &'static [::farfield::__private::FieldInfo] = &[
            ::farfield::__private::FieldInfo::new(
                "key",
                ::core::mem::offset_of!(NodeThis < K >, key),
                <K as ::farfield::__private::Field>::SHAPE,
            ),
            ::farfield::__private::FieldInfo::new(
                "next",
                ::core::mem::offset_of!(NodeThis < K >, next),
                <Link<Node<K>> as ::farfield::__private::Field>::SHAPE,
            ),
            ::farfield::__private::FieldInfo::new(
                "lock",
                ::core::mem::offset_of!(NodeThis < K >, lock),
                <Lock as ::farfield::__private::Field>::SHAPE,
            ),
        ];
    }
};
