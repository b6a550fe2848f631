//! `implement!`: the traits of a `#[remote]` struct, from a list of its fields.
//!
//! `#[remote]` writes what users see and what depends on the struct; these implementations only repeat one pattern for
//! each field, so they are written once, here. For each field the list has its name, its number and the functions of its
//! `Field` implementation, whose tokens stand where the type stands in the source: a type that does not fit is reported
//! there.

/// Implements `Field`, `FrozenField` and `Remote` for a handle, and `Clone` and `Debug` for its snapshot.
#[doc(hidden)]
#[macro_export]
macro_rules! __implement {
    (
        impl [$($parameters:tt)*] for $handle:ident [$($arguments:tt)*] [$($bounds:tt)*];
        $this:ident $fields:ident $init:ident $snapshot:ident;
        fields {$(
            $field:ident $index:literal: [$($encode:tt)*] [$($decode:tt)*] [$($store:tt)*] [$($shape:tt)*];
        )+}
        locals {$($local:ident = [$($start:tt)*];)*}
        tail $last:ident: [$($tail_bytes:tt)*] [$($tail_shape:tt)*];
    ) => {
        impl<$($parameters)*> $crate::__private::Field for $handle<$($arguments)*> $($bounds)* {
            type Cell = $this<$($arguments)*>;
            type Init = $init<$($arguments)*>;
            type Value<'g> = $snapshot<'g, $($arguments)*>;
            type Stored = Self;
            type Kept<'a> = &'a Self;
            const FINGERPRINT: u64 = $crate::__private::fingerprint_of::<Self>();
            const FROZEN: bool = $crate::__private::is_frozen::<Self>();
            const TAIL_STRIDE: usize = $($tail_shape)*.tail_stride;
            const TAIL_OFFSET: usize = $crate::__private::tail_offset::<Self>($($tail_shape)*.tail_offset);

            fn tail_bytes(init: &Self::Init) -> usize {
                $($tail_bytes)*(&init.$last)
            }
            #[inline]
            fn encode(init: Self::Init, out: &mut [u8]) {
                $($($encode)*(init.$field, &mut out[$crate::__private::offset::<Self, $index>()..]);)+
            }
            #[inline]
            fn decode<'g>(
                at: $crate::__private::Address,
                bytes: &[u8],
            ) -> $crate::__private::Result<Self::Value<'g>> {
                $crate::__private::Ok($snapshot {
                    $($field: {
                        let (at, bytes) = $crate::__private::part::<Self, $index>(at, bytes);
                        $($decode)*(at, bytes)?
                    },)+
                    __guard: ::core::marker::PhantomData,
                })
            }
            fn store(at: $crate::__private::Address, bytes: &[u8]) -> $crate::__private::Result<Self> {
                $crate::__private::Ok(Self {
                    $($field: {
                        let (at, bytes) = $crate::__private::part::<Self, $index>(at, bytes);
                        $($store)*(at, bytes)?
                    },)+
                    $($local: $($start)*,)*
                    __this: $crate::__private::RemotePtr::from_address(at),
                })
            }
            #[inline]
            fn kept(stored: &Self) -> &Self {
                stored
            }
        }
        impl<$($parameters)*> $crate::__private::FrozenField for $handle<$($arguments)*> $($bounds)* {}
        // SAFETY: the accessors are generated as `repr(transparent)` over an address, as `Remote` asks.
        unsafe impl<$($parameters)*> $crate::__private::Remote for $handle<$($arguments)*> $($bounds)* {
            type Fields = $fields<$($arguments)*>;
            const NAME: &'static str = ::core::stringify!($handle);
            const FIELDS: &'static [$crate::__private::FieldInfo] = &[$(
                $crate::__private::FieldInfo::new(
                    $crate::__private::text(::core::stringify!($field)),
                    ::core::mem::offset_of!(<Self as $crate::__private::Field>::Cell, $field),
                    $($shape)*,
                ),
            )+];
        }
        impl<'g, $($parameters)*> ::core::clone::Clone for $snapshot<'g, $($arguments)*> $($bounds)* {
            fn clone(&self) -> Self {
                Self {
                    $($field: ::core::clone::Clone::clone(&self.$field),)+
                    __guard: ::core::marker::PhantomData,
                }
            }
        }
        impl<'g, $($parameters)*> ::core::fmt::Debug for $snapshot<'g, $($arguments)*> $($bounds)* {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(::core::stringify!($snapshot))$(.field($crate::__private::text(::core::stringify!($field)), &self.$field))+.finish()
            }
        }
    };
}
pub use __implement as implement;
