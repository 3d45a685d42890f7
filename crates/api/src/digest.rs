//! Digests: the names of contents, wherever those travel.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
/// The hex digits of a SHA-256 hash.
const DIGITS: usize = 64;

/// The digest of a content: `sha256:` and 64 hex digits in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestError(String);

impl Digest {
    /// The digest of `content`.
    #[must_use]
    pub fn of(content: impl AsRef<[u8]>) -> Self {
        Self::from_hash(Sha256::digest(content.as_ref()).into())
    }

    /// The digest with this SHA-256 hash, for content that is hashed piece by piece.
    #[must_use]
    pub fn from_hash(hash: [u8; 32]) -> Self {
        let mut text = String::with_capacity(PREFIX.len() + DIGITS);
        text.push_str(PREFIX);
        for byte in hash {
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        Self(text)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first `digits` hex digits, for names: enough of them tell the contents of one owner apart.
    #[must_use]
    pub fn short(&self, digits: usize) -> &str {
        let hex = &self.0[PREFIX.len()..];
        hex.get(..digits).unwrap_or(hex)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let is_hex = |hex: &str| hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match text.strip_prefix(PREFIX) {
            Some(hex) if hex.len() == DIGITS && is_hex(hex) => Ok(Self(text.to_owned())),
            _ => Err(DigestError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for Digest {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a digest; write sha256: and 64 hex digits in lower case", self.0)
    }
}

impl std::error::Error for DigestError {}

/// The schema is that of a plain string, as it was before there was a type.
impl JsonSchema for Digest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_that_of_its_content_and_reads_back() {
        let digest = Digest::of("abc");
        assert_eq!(digest.to_string(), ABC);
        assert_eq!(ABC.parse(), Ok(digest.clone()));
        assert_eq!((digest.short(4), digest.short(100).len()), ("ba78", 64));
        assert_eq!(serde_json::from_str::<Digest>(&serde_json::to_string(&digest).unwrap()).unwrap(), digest);
    }

    #[test]
    fn other_texts_are_no_digests() {
        let upper = ABC.to_uppercase();
        let upper_hex = format!("sha256:{}", &upper[7..]);
        let (long, short) = (format!("{ABC}0"), &ABC[..70]);
        for text in ["", "sha256:", "sha256:1", &ABC[7..], &upper, &upper_hex, &long, short, "sha512:00"] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError(text.to_owned())));
            assert!(serde_json::from_value::<Digest>(text.into()).is_err(), "{text}");
        }
    }
}
