/// A set, and what this thread knows of it.
pub(crate) struct Set {
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Stored,
    size: <Atomic<u64> as ::farfield::__private::Field>::Stored,
    /// How often this thread began anew.
    restarts: Cell<u64>,
    pub limit: u32,
    __this: ::farfield::__private::RemotePtr<Self>,
}
/// The layout of a [`Set`] in far memory.
#[repr(C, align(8))]
#[allow(dead_code)]
pub(crate) struct SetThis {
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Cell,
    size: <Atomic<u64> as ::farfield::__private::Field>::Cell,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
/// The accessors of a [`Set`] in far memory; pointers to it dereference to this.
#[repr(transparent)]
pub(crate) struct SetFields<'g>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<(&'g (), fn() -> ())>,
);
/// The values to build a new [`Set`] from.
#[must_use]
pub(crate) struct SetInit {
    /// What `head` starts as.
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Init,
    /// What `size` starts as.
    size: <Atomic<u64> as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
/// Every field of a [`Set`], from one READ.
#[allow(dead_code)]
pub(crate) struct SetSnapshot {
    /// What `head` held.
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Value<'static>,
    /// What `size` held.
    size: <Atomic<u64> as ::farfield::__private::Field>::Value<'static>,
    __guard: ::core::marker::PhantomData<fn() -> ()>,
}
#[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
const _: () = {
    use ::farfield::__private as __ff;
    impl Set {
        /// The values of a new object: one for each field that has no default. Setters change the others.
        pub(crate) fn init(
            head: <RemotePtr<Node<u64>> as __ff::Field>::Init,
        ) -> SetInit {
            SetInit {
                head,
                size: <Atomic<u64> as __ff::DefaultInit>::default_init(),
                __parameters: ::core::marker::PhantomData,
            }
        }
        /// Allocates an object and builds its image. Publishing it, or `write`, is the one WRITE.
        pub(crate) async fn new_in<'a>(
            site: impl ::core::convert::Into<__ff::Site<'a>>,
            init: SetInit,
        ) -> __ff::Result<__ff::Owned<Self>> {
            __ff::new_in(site, init).await
        }
        /// A handle to the object at `ptr`: reads its frozen fields. One READ, or none if it has none.
        pub(crate) async fn attach(
            ptr: __ff::RemotePtr<Self>,
            ct: &__ff::ComputeThread,
        ) -> __ff::Result<Self> {
            __ff::attach(ptr, ct).await
        }
        /// Where the object is: `This` is for data, `self` is for code.
        pub(crate) fn this(&self) -> __ff::RemotePtr<Self> {
            self.__this
        }
        /// `head` if it is frozen, as read on `attach`; else its place. No round trip.
        fn head(&self) -> <RemotePtr<Node<u64>> as __ff::Field>::Kept<'_> {
            <RemotePtr<Node<u64>> as __ff::Field>::kept(&self.head)
        }
        /// `size` if it is frozen, as read on `attach`; else its place. No round trip.
        fn size(&self) -> <Atomic<u64> as __ff::Field>::Kept<'_> {
            <Atomic<u64> as __ff::Field>::kept(&self.size)
        }
    }
    impl<'g> SetFields<'g> {
        /// The place of `head`. No round trip.
        fn head(&self) -> __ff::Place<'g, RemotePtr<Node<u64>>> {
            __ff::place::<Set, RemotePtr<Node<u64>>, 0>(self.0)
        }
        /// The place of `size`. No round trip.
        fn size(&self) -> __ff::Place<'g, Atomic<u64>> {
            __ff::place::<Set, Atomic<u64>, 1>(self.0)
        }
    }
    impl SetInit {
        /// Sets what `size` starts as.
        fn size(mut self, value: impl __ff::Initial<__ff::Init<Atomic<u64>>>) -> Self {
            self.size = __ff::Initial::into_init(value);
            self
        }
    }
    __ff::implement! {
        impl [] for Set[] []; SetThis SetFields SetInit SetSnapshot[]; { head 0 : [<
        RemotePtr < Node < u64 > > as __ff::Field > ::encode] [< RemotePtr < Node < u64 >
        > as __ff::Field > ::decode] [< RemotePtr < Node < u64 > > as __ff::Field >
        ::store] [< RemotePtr < Node < u64 > > as __ff::Field > ::SHAPE]; size 1 : [<
        Atomic < u64 > as __ff::Field > ::encode] [< Atomic < u64 > as __ff::Field >
        ::decode] [< Atomic < u64 > as __ff::Field > ::store] [< Atomic < u64 > as
        __ff::Field > ::SHAPE]; } { restarts = [::core::default::Default::default()];
        limit = [7]; } size[< Atomic < u64 > as __ff::Field > ::tail_bytes] [< Atomic <
        u64 > as __ff::Field > ::SHAPE] {}
    }
    <Set as __ff::Remote>::PROVEN;
    ::core::assert!(::core::mem::align_of:: < SetThis > () >= 8);
};
