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
/// The accessors of a [`Node`] in far memory. Pointers to it dereference to this type.
#[repr(transparent)]
pub struct NodeFields<'g, K: Word>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<(&'g (), fn() -> (K,))>,
);
/// The initial values of a new [`Node`].
#[must_use]
pub struct NodeInit<K: Word> {
    /// The initial value of `key`.
    pub key: <K as ::farfield::__private::Field>::Init,
    /// The initial value of `next`.
    next: <Link<Node<K>, NodeMarked> as ::farfield::__private::Field>::Init,
    /// The initial value of `lock`.
    lock: <Lock as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> (K,)>,
}
/// The values of all fields of a [`Node`], from one READ.
#[allow(dead_code)]
pub struct NodeSnapshot<'g, K: Word> {
    /// Orders the nodes.
    ///
    /// The value of `key` when it was read.
    pub key: <K as ::farfield::__private::Field>::Value<'g>,
    /// The value of `next` when it was read.
    next: <Link<Node<K>, NodeMarked> as ::farfield::__private::Field>::Value<'g>,
    /// The value of `lock` when it was read.
    lock: <Lock as ::farfield::__private::Field>::Value<'g>,
    __guard: ::core::marker::PhantomData<(&'g (), fn() -> (K,))>,
}
/// The marks of a link in [`Node`], as part of the link's type.
pub enum NodeMarked {}
/// Methods of pointers with the marks [`NodeMarked`].
#[allow(dead_code)]
pub trait NodeMarks: ::farfield::__private::Marked {
    /// Returns whether the mark `deleted` is set.
    fn is_deleted(&self) -> bool {
        self.has_mark(1)
    }
    /// Returns the pointer with the mark `deleted` set.
    fn with_deleted(self) -> Self {
        self.set_mark(1)
    }
    /// Returns the pointer with the mark `deleted` cleared.
    fn without_deleted(self) -> Self {
        self.clear_mark(1)
    }
}
#[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
const _: () = {
    use ::farfield::__private as __ff;
    impl<K: Word> Node<K> {
        /// Returns the initial values of a new object: an argument for each field without a default, and setters for the others.
        pub fn init(key: K) -> NodeInit<K> {
            NodeInit {
                key,
                next: <Link<Node<K>, NodeMarked> as __ff::DefaultInit>::default_init(),
                lock: <Lock as __ff::DefaultInit>::default_init(),
                __parameters: ::core::marker::PhantomData,
            }
        }
        /// Allocates an object, whose image stays in local memory until it is published or written by `write`: one WRITE.
        #[inline]
        pub fn new_in<'a>(
            site: impl ::core::convert::Into<__ff::Site<'a>>,
            init: NodeInit<K>,
        ) -> __ff::NewObject<'a, Self> {
            __ff::new_in(site, init)
        }
        /// Returns a handle to the object at `ptr`. One READ for the frozen fields; none if there are none.
        pub async fn attach(
            ptr: __ff::RemotePtr<Self>,
            ct: &__ff::ComputeThread,
        ) -> __ff::Result<Self> {
            __ff::attach(ptr, ct).await
        }
        /// Returns the pointer to the object in far memory: `This` is for data, `self` is for code.
        pub fn this(&self) -> __ff::RemotePtr<Self> {
            self.__this
        }
        /// Orders the nodes.
        ///
        /// Returns the value of `key` that `attach` read if the field is frozen, else its place. No round trip.
        pub fn key(&self) -> <K as __ff::Field>::Kept<'_> {
            <K as __ff::Field>::kept(&self.key)
        }
        /// Returns the value of `next` that `attach` read if the field is frozen, else its place. No round trip.
        fn next(&self) -> <Link<Node<K>, NodeMarked> as __ff::Field>::Kept<'_> {
            <Link<Node<K>, NodeMarked> as __ff::Field>::kept(&self.next)
        }
        /// Returns the value of `lock` that `attach` read if the field is frozen, else its place. No round trip.
        fn lock(&self) -> <Lock as __ff::Field>::Kept<'_> {
            <Lock as __ff::Field>::kept(&self.lock)
        }
    }
    impl<'g, K: Word> NodeFields<'g, K> {
        /// Orders the nodes.
        ///
        /// Returns the place of `key`. No round trip.
        pub fn key(&self) -> __ff::Place<'g, K> {
            __ff::place::<Node<K>, K, 0>(self.0)
        }
        /// Returns the place of `next`. No round trip.
        fn next(&self) -> __ff::Place<'g, Link<Node<K>, NodeMarked>> {
            __ff::place::<Node<K>, Link<Node<K>, NodeMarked>, 1>(self.0)
        }
        /// Returns the place of `lock`. No round trip.
        fn lock(&self) -> __ff::Place<'g, Lock> {
            __ff::place::<Node<K>, Lock, 2>(self.0)
        }
    }
    impl<K: Word> NodeInit<K> {
        /// Sets the initial value of `next`.
        fn next(
            mut self,
            value: impl __ff::Initial<__ff::Init<Link<Node<K>, NodeMarked>>>,
        ) -> Self {
            self.next = __ff::Initial::into_init(value);
            self
        }
        /// Sets the initial value of `lock`.
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
