//! Messages that serde carries.

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;

use farfield_words::{Message, Reader, Writer};

/// An argument or a result of a [request](crate::Trust) of any type that [serde](https://serde.rs) can serialise, in the compact format of
/// [postcard](https://docs.rs/postcard): maps, sets, nested enums, types of other crates.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use farfield::Serde;
/// use farfield::prelude::*;
///
/// #[farfield::main]
/// async fn main(ct: &ComputeThread) -> Result<()> {
///     let words = ct.entrust(BTreeMap::<String, u32>::new()).await?;
///     let counts = BTreeMap::from([("far".to_owned(), 2), ("field".to_owned(), 1)]);
///     let known = words.apply(ct, Serde(counts), |words, Serde(counts): Serde<BTreeMap<String, u32>>| {
///         words.extend(counts);
///         Serde(words.clone())
///     });
///     assert_eq!(known.await?.0["far"], 2);
///     Ok(())
/// }
/// ```
///
/// It costs an allocation and a copy at each end, where `#[derive(Message)]` writes words in place. What it has must own nothing of Farfield's: a [`Trust`](crate::Trust) is counted,
/// and is sent as a message itself.
///
/// A value that cannot be serialised, and bytes that are none of the type, are the error that its words could not be decoded: [`Error::DelegationRefused`](crate::Error::DelegationRefused).
/// A method of a `#[delegated]` impl is named by its signature, in which all types that serde carries are equal: a method whose types change needs
/// another name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub struct Serde<T>(pub T);

/// Takes the place of the length of a value that can not be serialised.
const NONE: u64 = u64::MAX;

impl<T: Serialize + DeserializeOwned + 'static> Message for Serde<T> {
    const FINGERPRINT: u64 = farfield_words::fingerprint::name("message by serde in postcard's format");

    fn write(self, to: &mut Writer<'_>) {
        match postcard::to_allocvec(&self.0) {
            Ok(bytes) => {
                to.put(bytes.len() as u64);
                to.put_bytes(&bytes);
            }
            Err(_) => to.put(NONE),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let length = from.take().filter(|length| *length != NONE)?;
        let bytes = from.take_bytes(usize::try_from(length).ok()?)?;
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(Self(value))
    }
}
