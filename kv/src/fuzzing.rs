//! Entry points of fuzz targets: the decoders of what far memory has. Only in builds with `--cfg fuzzing`.

/// Decodes a page of any words, and encodes its records again.
pub fn page(data: &[u8]) {
    crate::exercise::page(data);
}

/// Encrypts a record, and decodes it with a changed bit.
pub fn encrypted(data: &[u8]) {
    crate::exercise::encrypted(data);
}
