/// A node of a sorted list.
pub struct Node<K: Word> {
    key: <K as ::farfield::__private::Field>::Stored,
    next: <Link<Node<K>, NodeMarked> as ::farfield::__private::Field>::Stored,
    lock: <Lock as ::farfield::__private::Field>::Stored,
    __this: ::farfield::__private::RemotePtr<Self>,
}
/// The layout of a [`Node`] in far memory.
#[repr(C, align(8))]
#[allow(dead_code)]
pub struct NodeThis<K: Word> {
    key: <K as ::farfield::__private::Field>::Cell,
    next: <Link<Node<K>, NodeMarked> as ::farfield::__private::Field>::Cell,
    lock: <Lock as ::farfield::__private::Field>::Cell,
    __parameters: ::core::marker::PhantomData<fn() -> (K,)>,
}
/// The accessors of a [`Node`] in far memory; pointers to it dereference to this.
#[repr(transparent)]
pub struct NodeFields<'g, K: Word>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<(&'g (), fn() -> (K,))>,
);
/// The values to build a new [`Node`] from.
#[must_use]
pub struct NodeInit<K: Word> {
    /// What `key` starts as.
    pub key: <K as ::farfield::__private::Field>::Init,
    /// What `next` starts as.
    next: <Link<Node<K>, NodeMarked> as ::farfield::__private::Field>::Init,
    /// What `lock` starts as.
    lock: <Lock as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> (K,)>,
}
/// Every field of a [`Node`], from one READ.
#[allow(dead_code)]
pub struct NodeSnapshot<'g, K: Word> {
    /// Orders the nodes.
    ///
    /// What `key` held.
    pub key: <K as ::farfield::__private::Field>::Value<'g>,
    /// What `next` held.
    next: <Link<Node<K>, NodeMarked> as ::farfield::__private::Field>::Value<'g>,
    /// What `lock` held.
    lock: <Lock as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<(&'g (), fn() -> (K,))>,
}
/// The marks of a link in [`Node`], as part of the link's type.
pub enum NodeMarked {}
/// What a link with the marks [`NodeMarked`] holds can say of them.
#[allow(dead_code)]
pub trait NodeMarks: ::farfield::__private::Marked {
    /// Whether the mark `deleted` is set.
    fn is_deleted(&self) -> bool {
        self.has_mark(1)
    }
    /// The same address and marks, with `deleted` set.
    fn with_deleted(self) -> Self {
        self.set_mark(1)
    }
    /// The same address and marks, without `deleted`.
    fn without_deleted(self) -> Self {
        self.clear_mark(1)
    }
}
#[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
const _: () = {
    use ::farfield::__private as __ff;
    impl<K: Word> Node<K> {
        /// The values of a new object: one for each field that has no default. Setters change the others.
        pub fn init(key: K) -> NodeInit<K> {
            NodeInit {
                key,
                next: <Link<Node<K>, NodeMarked> as __ff::DefaultInit>::default_init(),
                lock: <Lock as __ff::DefaultInit>::default_init(),
                __parameters: ::core::marker::PhantomData,
            }
        }
        /// Allocates an object and builds its image. Publishing it, or `write`, is the one WRITE.
        pub async fn new_in<'a>(
            site: impl ::core::convert::Into<__ff::Site<'a>>,
            init: NodeInit<K>,
        ) -> __ff::Result<__ff::Owned<Self>> {
            __ff::new_in(site, init).await
        }
        /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
        pub async fn attach(
            ptr: __ff::RemotePtr<Self>,
            ct: &__ff::ComputeThread,
        ) -> __ff::Result<Self> {
            __ff::attach(ptr, ct).await
        }
        /// Where the object is: `This` is for data, `self` is for code.
        pub fn this(&self) -> __ff::RemotePtr<Self> {
            self.__this
        }
        /// Orders the nodes.
        ///
        /// `key` if it is frozen, as read on `attach`; else its place. No round trip.
        pub fn key(&self) -> <K as __ff::Field>::Kept<'_> {
            <K as __ff::Field>::kept(&self.key)
        }
        /// `next` if it is frozen, as read on `attach`; else its place. No round trip.
        fn next(&self) -> <Link<Node<K>, NodeMarked> as __ff::Field>::Kept<'_> {
            <Link<Node<K>, NodeMarked> as __ff::Field>::kept(&self.next)
        }
        /// `lock` if it is frozen, as read on `attach`; else its place. No round trip.
        fn lock(&self) -> <Lock as __ff::Field>::Kept<'_> {
            <Lock as __ff::Field>::kept(&self.lock)
        }
    }
    impl<'g, K: Word> NodeFields<'g, K> {
        /// Orders the nodes.
        ///
        /// The place of `key`. No round trip.
        pub fn key(&self) -> __ff::Place<'g, K> {
            __ff::place::<Node<K>, K, 0>(self.0)
        }
        /// The place of `next`. No round trip.
        fn next(&self) -> __ff::Place<'g, Link<Node<K>, NodeMarked>> {
            __ff::place::<Node<K>, Link<Node<K>, NodeMarked>, 1>(self.0)
        }
        /// The place of `lock`. No round trip.
        fn lock(&self) -> __ff::Place<'g, Lock> {
            __ff::place::<Node<K>, Lock, 2>(self.0)
        }
    }
    impl<K: Word> NodeInit<K> {
        /// Sets what `next` starts as.
        fn next(
            mut self,
            value: impl __ff::Initial<__ff::Init<Link<Node<K>, NodeMarked>>>,
        ) -> Self {
            self.next = __ff::Initial::into_init(value);
            self
        }
        /// Sets what `lock` starts as.
        fn lock(mut self, value: impl __ff::Initial<__ff::Init<Lock>>) -> Self {
            self.lock = __ff::Initial::into_init(value);
            self
        }
    }
    __ff::implement! {
        impl [K : Word] for Node[K] []; NodeThis NodeFields NodeInit NodeSnapshot['g,]; {
        key 0 : [< K as __ff::Field > ::encode] [< K as __ff::Field > ::decode] [< K as
        __ff::Field > ::store] [< K as __ff::Field > ::SHAPE]; next 1 : [< Link < Node <
        K >, NodeMarked > as __ff::Field > ::encode] [< Link < Node < K >, NodeMarked >
        as __ff::Field > ::decode] [< Link < Node < K >, NodeMarked > as __ff::Field >
        ::store] [< Link < Node < K >, NodeMarked > as __ff::Field > ::SHAPE]; lock 2 :
        [< Lock as __ff::Field > ::encode] [< Lock as __ff::Field > ::decode] [< Lock as
        __ff::Field > ::store] [< Lock as __ff::Field > ::SHAPE]; } {} lock[< Lock as
        __ff::Field > ::tail_bytes] [< Lock as __ff::Field > ::SHAPE] { NodeMarked
        NodeMarks; }
    }
};
