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
/// The accessors of a [`Set`] in far memory. Pointers to it dereference to this type.
#[repr(transparent)]
pub(crate) struct SetFields<'g>(
    ::farfield::__private::Address,
    ::core::marker::PhantomData<(&'g (), fn() -> ())>,
);
/// The initial values of a new [`Set`].
#[must_use]
pub(crate) struct SetInit {
    /// The initial value of `head`.
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Init,
    /// The initial value of `size`.
    size: <Atomic<u64> as ::farfield::__private::Field>::Init,
    __parameters: ::core::marker::PhantomData<fn() -> ()>,
}
/// The values of all fields of a [`Set`], from one READ.
#[allow(dead_code)]
pub(crate) struct SetSnapshot {
    /// The value of `head` when it was read.
    head: <RemotePtr<Node<u64>> as ::farfield::__private::Field>::Value<'static>,
    /// The value of `size` when it was read.
    size: <Atomic<u64> as ::farfield::__private::Field>::Value<'static>,
    __guard: ::core::marker::PhantomData<fn() -> ()>,
}
#[allow(dead_code, deprecated, clippy::missing_errors_doc, clippy::too_many_arguments)]
const _: () = {
    use ::farfield::__private as __ff;
    impl Set {
        /// Returns the initial values of a new object: an argument for each field without a default, and setters for the others.
        pub(crate) fn init(
            head: <RemotePtr<Node<u64>> as __ff::Field>::Init,
        ) -> SetInit {
            SetInit {
                head,
                size: <Atomic<u64> as __ff::DefaultInit>::default_init(),
                __parameters: ::core::marker::PhantomData,
            }
        }
        /// Allocates an object, whose image stays in local memory until it is published or written by `write`: one WRITE.
        #[inline]
        pub(crate) fn new_in<'a>(
            site: impl ::core::convert::Into<__ff::Site<'a>>,
            init: SetInit,
        ) -> __ff::NewObject<'a, Self> {
            __ff::new_in(site, init)
        }
        /// Returns a handle to the object at `ptr`. One READ for the frozen fields; none if there are none.
        pub(crate) async fn attach(
            ptr: __ff::RemotePtr<Self>,
            ct: &__ff::ComputeThread,
        ) -> __ff::Result<Self> {
            __ff::attach(ptr, ct).await
        }
        /// Returns the pointer to the object in far memory: `This` is for data, `self` is for code.
        pub(crate) fn this(&self) -> __ff::RemotePtr<Self> {
            self.__this
        }
        /// Returns the value of `head` that `attach` read if the field is frozen, else its place. No round trip.
        fn head(&self) -> <RemotePtr<Node<u64>> as __ff::Field>::Kept<'_> {
            <RemotePtr<Node<u64>> as __ff::Field>::kept(&self.head)
        }
        /// Returns the value of `size` that `attach` read if the field is frozen, else its place. No round trip.
        fn size(&self) -> <Atomic<u64> as __ff::Field>::Kept<'_> {
            <Atomic<u64> as __ff::Field>::kept(&self.size)
        }
    }
    impl<'g> SetFields<'g> {
        /// Returns the place of `head`. No round trip.
        fn head(&self) -> __ff::Place<'g, RemotePtr<Node<u64>>> {
            __ff::place::<Set, RemotePtr<Node<u64>>, 0>(self.0)
        }
        /// Returns the place of `size`. No round trip.
        fn size(&self) -> __ff::Place<'g, Atomic<u64>> {
            __ff::place::<Set, Atomic<u64>, 1>(self.0)
        }
    }
    impl SetInit {
        /// Sets the initial value of `size`.
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
