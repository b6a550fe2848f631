//! A register of several words: tests `Versioned`, which no example structure uses.

use farfield::prelude::*;

/// A value in several words, all of which are equal.
#[remote]
pub struct Register {
    value: Versioned<[u64; 4]>,
}

impl Register {
    /// A new register, of value 0. One round trip.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::new_in(ct, Self::init([0; 4])).await?.write(ct).await
    }

    /// The value.
    ///
    /// # Errors
    /// If the words differ (a torn READ); the message shows them.
    pub async fn read(&self, ct: &ComputeThread) -> Result<u64> {
        let words = self.value().read(ct).await?;
        if words == [words[0]; 4] {
            Ok(words[0])
        } else {
            Err(farfield::Error::other(format!("torn: {words:?}")))
        }
    }

    /// Replaces the value.
    pub async fn write(&self, value: u64, ct: &ComputeThread) -> Result<()> {
        self.value().write(ct, [value; 4]).await
    }

    /// Frees the register.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        ct.delete(self.this()).await
    }
}
