//! What fetches may do.

use crate::address::Addresses;

/// What an administrator allows fetches to do. The default is safe for an operator with many users.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether `file://` is read: only where whoever writes a source may read the operator's files anyway.
    pub local: bool,
    /// The addresses that may be connected to.
    pub addresses: Addresses,
    /// Whether credentials are sent over `http://` to addresses other than loopback.
    pub plain_http_credentials: bool,
}
