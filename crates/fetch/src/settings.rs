//! What may be fetched.

/// What fetches may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Whether `file://` is read: only where whoever writes a source may read the operator's files anyway.
    pub local: bool,
}
