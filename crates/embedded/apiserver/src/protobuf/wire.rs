//! The protobuf wire format: a body as a sequence of numbered values.
//!
//! Promises: no input makes it panic, allocate or recurse; a length is checked against what is left before it is used.

use super::Error;

/// How deeply unknown groups may nest before the body is refused.
const MAX_GROUPS: usize = 64;

/// One value as it stands on the wire, before a table says what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// An integer, a boolean or an enumeration.
    Varint(u64),
    /// A string, bytes, a message, or packed integers.
    Bytes(&'a [u8]),
    /// Eight bytes: a number with a fraction.
    Fixed64(u64),
    /// Four bytes, or a group: no Kubernetes type uses them, so their content is skipped.
    Other,
}

/// Reads the fields of one message in the order in which they were written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True when every byte was read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and value, or `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let (number, kind) = self.tag()?;
        let value = match kind {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(self.take(8)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))),
            2 => Wire::Bytes(self.bytes()?),
            _ => {
                self.skip(number, kind)?;
                Wire::Other
            }
        };
        Ok(Some((number, value)))
    }

    /// A base-128 integer of at most ten bytes.
    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                return Err(Error::Malformed("an integer of more than 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Malformed("an integer of more than ten bytes"))
    }

    fn tag(&mut self) -> Result<(u32, u8), Error> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Error::Malformed("a field number that is too large"))?;
        if number == 0 {
            return Err(Error::Malformed("the field number 0"));
        }
        Ok((number, (tag & 7) as u8))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| Error::Truncated)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Skips a value of fixed size or a whole group, counting open groups instead of recursing into them.
    fn skip(&mut self, number: u32, kind: u8) -> Result<(), Error> {
        let mut open = Vec::new();
        let (mut number, mut kind) = (number, kind);
        loop {
            match kind {
                0 => _ = self.varint()?,
                1 => _ = self.take(8)?,
                2 => _ = self.bytes()?,
                3 if open.len() == MAX_GROUPS => return Err(Error::TooDeep),
                3 => open.push(number),
                4 if open.pop() != Some(number) => {
                    return Err(Error::Malformed("the end of a group that was not begun"));
                }
                4 => {}
                5 => _ = self.take(4)?,
                _ => return Err(Error::Malformed("a wire type that does not exist")),
            }
            if open.is_empty() {
                return Ok(());
            }
            (number, kind) = self.tag()?;
        }
    }
}
