//! The errors of this crate, and the macro that defines every layer's error type.
//!
//! Each layer has one flat enum `Error`: its own variants and those of the layers below, so that a program matches one enum. `From` converts the
//! error of a lower layer, and the compiler checks that the conversion covers every variant.
//!
//! An error is a tag and a box, so a result on the data path costs no more than its value and a tag.

use std::fmt;

use crate::Address;
pub use crate::printable::Printable;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Defines a layer's error type: an enum whose variants are boxed structs, and the structs.
///
/// The input has three parts: the enum with the variants that it inherits from lower layers; the variants of each such layer; the layer's own structs
/// with their messages. `[non_exhaustive]` before the enum makes it non-exhaustive. A message is one line: [`Printable`] escapes control characters
/// of its values.
///
/// ```
/// mod error {
///     use farfield_words::error::InvalidPointer;
///
///     farfield_words::errors! {
///         /// An error of a disk.
///         pub enum Error {
///             /// A pointer that no object can have.
///             InvalidPointer,
///         }
///         /// A disk without room.
///         #[error("disk {disk} is full")]
///         DiskFull {
///             /// Its number.
///             disk: u32,
///         }
///     }
/// }
///
/// assert_eq!(error::Error::from(error::DiskFull { disk: 3 }).to_string(), "disk 3 is full");
/// ```
#[macro_export]
macro_rules! errors {
    (
        $(#[doc = $enum_doc:literal])*
        $([$growth:meta])?
        pub enum Error {
            $($(#[doc = $inherited_doc:literal])* $inherited:ident,)*
        }
        $(from $lower:ident { $($moved:ident,)* })*
        $(
            $(#[doc = $doc:literal])*
            #[error($($message:tt)*)]
            $variant:ident { $($(#[doc = $field_doc:literal])* $field:ident: $ty:ty,)* }
        )*
    ) => {
        $(#[doc = $enum_doc])*
        $(#[$growth])?
        pub enum Error {
            $(
                $(#[doc = $inherited_doc])*
                $inherited(Box<$inherited>),
            )*
            $(
                $(#[doc = $doc])*
                $variant(Box<$variant>),
            )*
                        /// An error of the program's own or of a library, passed on with its message.
            Other(Box<Box<dyn std::error::Error + Send + Sync>>),
        }
        impl Error {
                        /// Wraps an error of the program's own, to return it from a compute thread.
            pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
                Self::Other(Box::new(error.into()))
            }
        }
        impl std::error::Error for Error {}
        /// A result costs no more than its value and a tag.
        const _: () = assert!(size_of::<Error>() == 16);
        impl std::fmt::Display for Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$inherited(error) => std::fmt::Display::fmt(error, f),)*
                    $(Self::$variant(error) => std::fmt::Display::fmt(error, f),)*
                    Self::Other(error) => std::fmt::Display::fmt(error, f),
                }
            }
        }
        impl std::fmt::Debug for Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                match self {
                    $(Self::$inherited(error) => f.debug_tuple(stringify!($inherited)).field(error).finish(),)*
                    $(Self::$variant(error) => f.debug_tuple(stringify!($variant)).field(error).finish(),)*
                    Self::Other(error) => f.debug_tuple("Other").field(error).finish(),
                }
            }
        }
        $(
            impl From<$lower::Error> for Error {
                #[cold]
                fn from(error: $lower::Error) -> Self {
                    match error {
                        $($lower::Error::$moved(error) => Self::$moved(error),)*
                        $lower::Error::Other(error) => Self::Other(error),
                    }
                }
            }
        )*
        $(
            impl From<$inherited> for Error {
                #[cold]
                fn from(error: $inherited) -> Self {
                    Self::$inherited(Box::new(error))
                }
            }
        )*
        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub struct $variant {
                $($(#[doc = $field_doc])* pub $field: $ty,)*
            }
            impl std::fmt::Display for $variant {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    #[allow(unused_variables)] // a field need not be in the message
                    let Self { $($field),* } = self;
                    std::fmt::Display::fmt(&$crate::error::Printable(format_args!($($message)*)), f)
                }
            }
            impl std::error::Error for $variant {}
            impl From<$variant> for Error {
                #[cold]
                fn from(error: $variant) -> Self {
                    Self::$variant(Box::new(error))
                }
            }
        )*
    };
}

errors! {
        /// An invalid address, value or argument.
    pub enum Error {}

    /// A pointer that no object can have.
    #[error("invalid pointer {address}: {fault}")]
    InvalidPointer {
                /// The pointer as the program used it.
        address: Address,
                /// The fault.
        fault: PointerFault,
    }
    /// Bits in far memory that no value of the expected type has.
    #[error("the bits at {address} are not a valid {type_name}")]
    InvalidValue {
                /// The address of the bits.
        address: Address,
                /// The expected type.
        type_name: &'static str,
    }
    /// An argument outside its bounds.
    #[error("{argument} is {value}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// Its value.
        value: Box<str>,
        /// The bounds.
        reason: &'static str,
    }
}

/// The fault of an invalid pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointerFault {
    /// It is null.
    Null,
    /// It is not a multiple of the object's alignment.
    Misaligned {
        /// The alignment that the object needs, in bytes.
        align: u32,
    },
    /// The object would reach past the end of its segment.
    PastSegment {
        /// The segment's size.
        size_bytes: u64,
    },
    /// The cluster has no such segment.
    NoSegment {
        /// The cluster's number of segments.
        segments: u32,
    },
    /// No object begins there: it was freed, or never allocated. (Debug builds detect this; release builds detect only a double free of the block
    /// freed last.)
    NoObject,
    /// The object has been retired, so reclamation will free it. (Detected under the same conditions.)
    Retired,
    /// Its address is too large to be compressed beside a tag or a stamp.
    NotCompressible,
}

impl fmt::Display for PointerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("it is null"),
            Self::Misaligned { align } => write!(f, "it is not a multiple of {align}"),
            Self::PastSegment { size_bytes } => {
                write!(f, "the access ends past its segment of {size_bytes} bytes")
            }
            Self::NoSegment { segments } => write!(f, "there are only {segments} segments"),
            Self::NoObject => f.write_str("no object begins there: it was freed, or never allocated"),
            Self::Retired => f.write_str("the object has been retired already"),
            Self::NotCompressible => f.write_str(
                "a tagged or stamped link holds segments below 4096 and offsets below 512 GiB only",
            ),
        }
    }
}
