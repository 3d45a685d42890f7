//! Content that is too large for one object: compressed, cut into parts, put together and checked again.
//!
//! A part is named after the content it belongs to, so writing it a second time writes the same thing, and a head that
//! names its parts can never meet parts of another content.

use std::io;

use sha2::{Digest, Sha256};

/// The size of a part. A Secret holds 1 MiB, and travels as base64 in one request.
pub const PART: usize = 512 * 1024;

/// Why content cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not the content that was stored.
    #[error("the stored content is `{found}`, but `{expected}` was stored; somebody changed a Secret of it")]
    Digest {
        /// The digest that was stored.
        expected: String,
        /// The digest of what is there.
        found: String,
    },
    /// It cannot be unpacked.
    #[error("the stored content cannot be unpacked: {0}; somebody changed a Secret of it")]
    Unpack(#[source] io::Error),
}

/// Content, packed and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// `sha256:` and the hash of the content before it was packed.
    pub digest: String,
    /// The parts in order; never empty.
    pub parts: Vec<Vec<u8>>,
}

/// Packs `content` and cuts it into parts of at most `part` bytes.
///
/// # Errors
/// When there is no memory left to do so.
pub fn pack(content: &[u8], part: usize) -> io::Result<Packed> {
    let packed = zstd::encode_all(content, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    let parts = if packed.len() <= part { vec![packed] } else { packed.chunks(part).map(<[u8]>::to_vec).collect() };
    Ok(Packed { digest: digest(content), parts })
}

/// Puts parts together again; `expected` is the digest that [`pack`] gave.
///
/// # Errors
/// When they are not what was packed.
pub fn unpack<'a>(parts: impl IntoIterator<Item = &'a [u8]>, expected: &str) -> Result<Vec<u8>, Error> {
    let packed: Vec<u8> = parts.into_iter().flatten().copied().collect();
    let content = zstd::decode_all(&packed[..]).map_err(Error::Unpack)?;
    let found = digest(&content);
    if found == expected { Ok(content) } else { Err(Error::Digest { expected: expected.to_owned(), found }) }
}

/// `sha256:` and the hash of `content`.
#[must_use]
pub fn digest(content: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(content) {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    text
}

/// The first digits of a digest, enough to tell the contents of one name apart.
#[must_use]
pub fn short(digest: &str) -> &str {
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    hash.get(..10).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_what_comes_back(content in prop::collection::vec(any::<u8>(), 0..4000), part in 1usize..600) {
            let packed = pack(&content, part).unwrap();
            prop_assert!(!packed.parts.is_empty());
            prop_assert!(packed.parts.iter().all(|piece| piece.len() <= part));
            prop_assert_eq!(unpack(packed.parts.iter().map(Vec::as_slice), &packed.digest).unwrap(), content);
        }

        #[test]
        fn a_missing_part_is_noticed(content in prop::collection::vec(any::<u8>(), 200..4000), gone in any::<prop::sample::Index>()) {
            let mut packed = pack(&content, 50).unwrap();
            packed.parts.remove(gone.index(packed.parts.len()));
            prop_assert!(unpack(packed.parts.iter().map(Vec::as_slice), &packed.digest).is_err());
        }
    }

    #[test]
    fn other_content_is_noticed() {
        let packed = pack(b"one", PART).unwrap();
        let error = unpack(packed.parts.iter().map(Vec::as_slice), &digest(b"two")).unwrap_err();
        assert!(matches!(error, Error::Digest { .. }));
    }
}
