//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.

/// Reads the bytes as a patch.
pub fn patch(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        // Reading must end, and must not panic; what it finds depends on the files.
        drop(crate::patch::parse_only(text));
    }
}
