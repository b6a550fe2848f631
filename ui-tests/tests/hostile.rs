//! The macros work without a prelude and under lints that forbid nearly everything.

#![no_implicit_prelude]
#![forbid(unsafe_code)]
#![deny(
    warnings,
    future_incompatible,
    keyword_idents,
    let_underscore,
    missing_abi,
    missing_copy_implementations,
    missing_debug_implementations,
    missing_docs,
    nonstandard_style,
    refining_impl_trait,
    rust_2018_idioms,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unnameable_types,
    unreachable_pub,
    unused,
    unused_import_braces,
    unused_lifetimes,
    unused_qualifications,
    unused_results,
    variant_size_differences,
    clippy::all,
    clippy::pedantic
)]

/// The structs.
pub mod remote {
    /// A C-like enum.
    #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::farfield::Word)]
    #[repr(i8)]
    pub enum Direction {
        /// Down.
        Down = -1,
        /// Up.
        Up = 1,
    }

    /// A newtype.
    #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::farfield::Word)]
    pub struct Metres(f32);

    /// Nested.
    #[::farfield::remote]
    pub struct Point {
        /// To the right.
        pub x: Metres,
        y: ::farfield::Atomic<u64>,
    }

    /// With everything.
    #[::farfield::remote]
    pub struct Node<K: ::farfield::Word, const N: usize>
    where
        K: ::core::cmp::Ord,
    {
        /// The key.
        pub key: K,
        direction: Direction,
        at: Point,
        slots: [::farfield::Atomic<u8>; N],
        #[marks(deleted)]
        next: ::farfield::Link<Node<K, N>>,
        lock: ::farfield::Lock,
        #[local]
        hits: u64,
        rest: ::farfield::Tail<u32>,
    }

    impl<K: ::farfield::Word + ::core::cmp::Ord, const N: usize> Node<K, N> {
        /// A new one.
        ///
        /// # Errors
        /// Those of allocation.
        pub async fn create(
            key: K,
            ct: &::farfield::ComputeThread,
        ) -> ::farfield::Result<::farfield::RemotePtr<Self>> {
            let init = Self::init(key, Direction::Up, Point::init(Metres(1.5)), ::std::vec![1, 2]);
            Self::new_in(ct, init).await?.write(ct).await
        }

        /// The number of hits.
        pub fn hits(&self) -> u64 {
            self.hits
        }
    }
}

/// A delegated type.
pub mod delegated {
    /// A message of each shape.
    #[derive(::core::fmt::Debug, ::farfield::Message)]
    pub enum Change<T> {
        /// Nothing.
        Nothing,
        /// An element.
        Push(T),
        /// Several.
        Several {
            /// The elements.
            all: ::std::vec::Vec<T>,
            /// For each.
            times: u8,
        },
    }

    /// A list.
    #[derive(::core::fmt::Debug, ::core::default::Default)]
    pub struct List<T> {
        elements: ::std::vec::Vec<T>,
    }

    #[::farfield::delegated]
    impl<T: ::farfield::Message + ::core::clone::Clone> List<T> {
        /// Changes the list.
        pub fn change(&mut self, change: Change<T>) -> u64 {
            match change {
                Change::Nothing => {}
                Change::Push(element) => self.elements.push(element),
                Change::Several { all, times } => {
                    for _ in 0..times {
                        self.elements.extend_from_slice(&all);
                    }
                }
            }
            self.elements.len() as u64
        }

        /// Changes another list.
        pub fn forward(
            &self,
            context: &::farfield::Context<'_>,
            to: ListClient<T>,
            change: Change<T>,
        ) -> bool {
            let posted = to.via(context).change(change).post();
            ::core::mem::drop(to);
            posted.is_ok()
        }

        /// Returns the caller and the length.
        #[must_use]
        pub fn asked(&self, context: &::farfield::Context<'_>) -> (u64, ::std::string::String) {
            (self.elements.len() as u64, ::std::string::ToString::to_string(&context.caller()))
        }
    }
}

#[::farfield::test]
async fn expansions_need_no_prelude_and_cause_no_lint(
    ct: &::farfield::ComputeThread,
) -> ::farfield::Result<()> {
    let g = &ct.pin();
    let node = remote::Node::<u64, 3>::create(4, ct).await?;
    let seen = node.read(g).await?;
    ::std::assert_eq!(seen.key, 4);
    let (key,) = ::farfield::fetch!(g, node.{key}).await?;
    ::std::assert_eq!(key, 4);
    ::std::assert_eq!(remote::Node::attach(node, ct).await?.hits(), 0);
    let list = <delegated::List<u64> as ::core::default::Default>::default();
    let list = delegated::ListClient::entrust(ct, list).await?;
    ::std::assert_eq!(list.change(ct, delegated::Change::Push(1)).await?, 1);
    let several = delegated::Change::Several { all: ::std::vec![2, 3], times: 2 };
    ::std::assert_eq!(list.change(ct, several).await?, 5);
    ::std::assert_eq!(list.change(ct, delegated::Change::Nothing).await?, 5);
    ::std::assert_eq!(list.asked(ct).await?.0, 5);
    ::std::assert!(list.forward(ct, ::core::clone::Clone::clone(&list), delegated::Change::Nothing).await?);
    ::core::result::Result::Ok(())
}
