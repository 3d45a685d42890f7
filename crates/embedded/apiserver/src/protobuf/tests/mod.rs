//! Tests of the decoder: real bodies, every table, and input that nobody should send.
#![allow(clippy::unwrap_used, reason = "tests")]

mod captured;
mod hostile;
mod rows;

/// A message being written, the way a client would.
#[derive(Clone, Default)]
struct Encoder(Vec<u8>);

impl Encoder {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn int(self, number: u32, value: i64) -> Self {
        self.varint(u64::from(number) << 3).varint(value.cast_unsigned())
    }

    fn bytes(self, number: u32, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut encoder = self.varint(u64::from(number) << 3 | 2).varint(value.len() as u64);
        encoder.0.extend_from_slice(value);
        encoder
    }

    fn double(self, number: u32, value: f64) -> Self {
        let mut encoder = self.varint(u64::from(number) << 3 | 1);
        encoder.0.extend_from_slice(&value.to_le_bytes());
        encoder
    }

    fn message(self, number: u32, value: Encoder) -> Self {
        self.bytes(number, value.0)
    }
}

fn empty() -> Encoder {
    Encoder::default()
}

/// A whole body: magic, envelope, object.
fn body(api_version: &str, kind: &str, object: Encoder) -> Vec<u8> {
    let envelope = empty().message(1, empty().bytes(1, api_version).bytes(2, kind)).message(2, object);
    [super::MAGIC.as_slice(), &envelope.0].concat()
}
