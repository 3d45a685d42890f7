//! Kubernetes protobuf request bodies, read as the JSON that the rest of the server works with.
//!
//! kubectl and the typed Go clients write built-in kinds as `application/vnd.kubernetes.protobuf`: four bytes of magic, then
//! an envelope with the kind and the object's bytes. [`decode`] knows the kinds that clients of this server send; the
//! answers are always JSON, which every client accepts.
//!
//! Guarantees: any input gives a value or an error, never a panic; memory grows with the input only, never with a
//! length that the input claims; nesting is bounded. Fields that the tables do not know are skipped.

mod message;
mod tables;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::{Map, Value};

use wire::{Reader, Wire};

/// What every Kubernetes protobuf body begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// The media type of these bodies.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Names longer than this are cut in messages: a body may claim a kind of any length.
const LONGEST_NAME: usize = 128;

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first four bytes are not [`MAGIC`].
    #[error("the body does not begin with the Kubernetes protobuf prefix: send it as `application/json`")]
    Magic,
    /// The kind has no table here.
    #[error("`{kind}` of `{api_version}` is not understood in protobuf: send it as `application/json`")]
    UnknownKind {
        /// The `apiVersion` of the envelope.
        api_version: String,
        /// The `kind` of the envelope.
        kind: String,
    },
    /// The envelope says that the object inside is compressed or not protobuf.
    #[error("the protobuf envelope holds `{0}` instead of protobuf: send the object as `application/json`")]
    Encoding(String),
    /// The body ends inside a value.
    #[error("the protobuf body ends too early: send it again, whole")]
    Truncated,
    /// The body breaks a rule of the wire format.
    #[error("the protobuf body is malformed: it has {0}")]
    Malformed(&'static str),
    /// Messages or groups nest beyond the limit.
    #[error("the protobuf body is nested too deeply")]
    TooDeep,
    /// A known field has a value of another type.
    #[error("the protobuf field `{0}` has a value of the wrong type")]
    WrongType(&'static str),
    /// A string is not UTF-8.
    #[error(
        "the protobuf field `{0}` is not valid UTF-8: put binary data where bytes are allowed, such as `binaryData`"
    )]
    Text(&'static str),
    /// A time cannot be written in RFC 3339.
    #[error("the protobuf field `{0}` is not a time between the years 0 and 9999")]
    Time(&'static str),
    /// A field that holds JSON text does not parse.
    #[error("the protobuf field `{field}` does not hold valid JSON: {source}")]
    Json {
        /// The field that holds the text.
        field: &'static str,
        /// What the parser said.
        source: serde_json::Error,
    },
}

/// Decodes a Kubernetes protobuf body into the JSON form of its object, `apiVersion` and `kind` included.
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    let envelope = Envelope::read(bytes.strip_prefix(MAGIC).ok_or(Error::Magic)?)?;
    let Some(table) = tables::of(&envelope.api_version, &envelope.kind) else {
        return Err(Error::UnknownKind { api_version: shorten(&envelope.api_version), kind: shorten(&envelope.kind) });
    };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), envelope.api_version.into());
    object.insert("kind".to_owned(), envelope.kind.into());
    message::decode_into(&mut object, table, envelope.raw)?;
    Ok(Value::Object(object))
}

/// The message around every object, `runtime.Unknown` in Kubernetes' words.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut envelope = Self { api_version: String::new(), kind: String::new(), raw: &[] };
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => envelope.read_type(bytes)?,
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                (3, Wire::Bytes(encoding)) if !encoding.is_empty() => {
                    return Err(encoded(encoding));
                }
                (4, Wire::Bytes(content)) if !content.is_empty() && content != CONTENT_TYPE.as_bytes() => {
                    return Err(encoded(content));
                }
                (1, _) => return Err(Error::WrongType("typeMeta")),
                (2, _) => return Err(Error::WrongType("raw")),
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match (number, wire) {
                (1, Wire::Bytes(text)) => self.api_version = utf8("apiVersion", text)?,
                (2, Wire::Bytes(text)) => self.kind = utf8("kind", text)?,
                (1, _) => return Err(Error::WrongType("apiVersion")),
                (2, _) => return Err(Error::WrongType("kind")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn utf8(field: &'static str, bytes: &[u8]) -> Result<String, Error> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Error::Text(field))
}

fn encoded(what: &[u8]) -> Error {
    Error::Encoding(shorten(&String::from_utf8_lossy(what)))
}

fn shorten(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}
