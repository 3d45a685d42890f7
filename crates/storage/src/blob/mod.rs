//! Content of any size as it is stored: compressed, sealed and cut into parts, each of which fits into an object.
//!
//! *Guarantees.* A part is named after the content that it belongs to, so that writing it again writes the same, and a
//! head that names its parts never meets parts of another content. Content is checked against its digest when it is
//! read, and reading it takes a bounded amount of memory, whatever somebody wrote into the objects.

use std::io;

use knoll_api::Digest;
use knoll_api::wire::LARGEST_CONTENT;

use crate::messages::json_fault;
use crate::seal::{SealError, Sealer};

mod objects;

pub(crate) use objects::{Carrier, delete_unchanged, read_parts, used_at, write_parts};

/// The size of a part. An object holds 1 MiB, and travels as base64 in one request.
pub(crate) const PART: usize = 512 * 1024;
/// The largest content, as large as the largest request that the hub takes.
pub(crate) const LARGEST: u64 = LARGEST_CONTENT;
/// The key of the bytes in a Secret or a ConfigMap.
pub(crate) const CONTENT: &str = "content";
/// How many hex digits of its content's digest the name of a part has.
pub(crate) const NAME_DIGITS: usize = 10;

/// Why stored content is not what was stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("the stored content is `{found}`, but `{expected}` was stored; somebody changed an object of it")]
    Digest { expected: Digest, found: Digest },
    #[error("the object `{0}` does not say which content it holds; somebody changed it")]
    NoDigest(String),
    #[error("its part `{0}` is missing")]
    MissingPart(String),
    #[error("there is a {kind} `{name}` with other content; delete it")]
    Occupied { kind: String, name: String },
    #[error("the stored content cannot be unpacked: {0}; somebody changed an object of it")]
    Unpack(#[source] io::Error),
    #[error("the stored content has more than {} MiB", .0 / 1024 / 1024)]
    TooLarge(u64),
    #[error("the stored content cannot be opened: {0}")]
    Seal(#[from] SealError),
    #[error("the stored content cannot be read: {}; somebody changed an object of it", json_fault(.0))]
    Format(#[from] serde_json::Error),
}

/// Content, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    /// The digest of the content itself.
    pub digest: Digest,
    /// The stored bytes in order; never empty.
    pub parts: Vec<Vec<u8>>,
}

impl Blob {
    /// Compresses and seals `content`, and cuts it into parts of at most `part` bytes.
    pub(crate) fn pack(content: &[u8], sealer: &Sealer, part: usize) -> Result<Self, BlobError> {
        Ok(Blob { digest: Digest::of(content), parts: cut(&encode(content, sealer)?, part) })
    }
}

/// Cuts stored bytes into parts of at most `part` bytes; at least one, which may be empty.
pub(crate) fn cut(stored: &[u8], part: usize) -> Vec<Vec<u8>> {
    match stored.len() <= part {
        true => vec![stored.to_vec()],
        false => stored.chunks(part).map(<[u8]>::to_vec).collect(),
    }
}

pub(crate) fn encode(content: &[u8], sealer: &Sealer) -> Result<Vec<u8>, BlobError> {
    // In one piece, so that the frame declares the size of its content.
    let packed = zstd::bulk::compress(content, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(BlobError::Unpack)?;
    Ok(sealer.seal(packed)?)
}

/// Opens and decompresses content of at most `limit` bytes. The frame declares how many it has: nothing is unpacked if
/// those are too many, and never more than that.
pub(crate) fn decode(stored: Vec<u8>, sealer: &Sealer, limit: u64) -> Result<Vec<u8>, BlobError> {
    let packed = sealer.open(stored)?;
    let undeclared = || BlobError::Unpack(io::Error::other("it does not declare its size"));
    let declared = zstd::zstd_safe::get_frame_content_size(&packed).ok().flatten().ok_or_else(undeclared)?;
    let size = usize::try_from(declared).ok().filter(|_| declared <= limit).ok_or(BlobError::TooLarge(limit))?;
    zstd::bulk::decompress(&packed, size).map_err(BlobError::Unpack)
}

/// The content of these stored bytes, which has to have the digest that it was stored with.
pub(crate) fn unpack(stored: Vec<u8>, expected: &Digest, sealer: &Sealer) -> Result<Vec<u8>, BlobError> {
    unpack_within(stored, expected, sealer, LARGEST)
}

/// As [`unpack`], for content of at most `limit` bytes.
pub(crate) fn unpack_within(
    stored: Vec<u8>,
    expected: &Digest,
    sealer: &Sealer,
    limit: u64,
) -> Result<Vec<u8>, BlobError> {
    let content = decode(stored, sealer, limit)?;
    let found = Digest::of(&content);
    if found == *expected { Ok(content) } else { Err(BlobError::Digest { expected: expected.clone(), found }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::seal::tests::{Reversed, plain, subject};

    proptest! {
        #[test]
        fn what_is_packed_is_what_comes_back(
            content in prop::collection::vec(any::<u8>(), 0..4000),
            part in 1usize..600,
            reversed in any::<bool>(),
        ) {
            let sealer = if reversed { Sealer::new(Arc::new(Reversed), subject("w")) } else { plain() };
            let blob = Blob::pack(&content, &sealer, part).unwrap();
            prop_assert!(!blob.parts.is_empty());
            prop_assert!(blob.parts.iter().all(|piece| piece.len() <= part));
            prop_assert_eq!(unpack(blob.parts.concat(), &blob.digest, &sealer).unwrap(), content);
        }

        #[test]
        fn a_missing_part_is_noticed(
            content in prop::collection::vec(any::<u8>(), 200..4000),
            gone in any::<prop::sample::Index>(),
        ) {
            let mut blob = Blob::pack(&content, &plain(), 50).unwrap();
            blob.parts.remove(gone.index(blob.parts.len()));
            prop_assert!(unpack(blob.parts.concat(), &blob.digest, &plain()).is_err());
        }
    }

    #[test]
    fn other_content_is_noticed() {
        let blob = Blob::pack(b"one", &plain(), PART).unwrap();
        let error = unpack(blob.parts.concat(), &Digest::of("two"), &plain()).unwrap_err();
        assert!(matches!(error, BlobError::Digest { .. }));
    }

    #[test]
    fn what_was_sealed_for_another_is_not_opened() {
        let sealer = |owner| Sealer::new(Arc::new(Reversed), subject(owner));
        let stored = encode(b"one", &sealer("w")).unwrap();
        assert_eq!(decode(stored.clone(), &sealer("w"), LARGEST).unwrap(), b"one");
        assert!(matches!(decode(stored, &sealer("other"), LARGEST), Err(BlobError::Seal(_))));
    }

    #[test]
    fn content_that_unpacks_to_more_than_the_limit_is_refused() {
        let stored = encode(&[0; 4096], &plain()).unwrap();
        assert_eq!(decode(stored.clone(), &plain(), 4096).unwrap().len(), 4096);
        assert!(matches!(decode(stored, &plain(), 4095), Err(BlobError::TooLarge(4095))));
    }

    #[test]
    fn content_that_unpacks_to_more_than_it_declares_is_refused() {
        // A second frame behind the first, one without a declared size, and no frame at all.
        let two = [encode(b"one", &plain()).unwrap(), encode(&[0; 4096], &plain()).unwrap()].concat();
        let streamed = zstd::encode_all(&[0; 4096][..], 1).unwrap();
        for stored in [two, streamed, b"plain".to_vec(), Vec::new()] {
            assert!(matches!(decode(stored, &plain(), 1 << 20), Err(BlobError::Unpack(_))));
        }
    }
}
