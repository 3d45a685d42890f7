//! Messages as tables of fields, and the decoder that turns wire bytes into JSON by them.
//!
//! The JSON is what the Go type with the same table would print, but for one thing: an empty object that carries no
//! meaning (`status: {}`) and an unset time are left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Error;
use super::wire::{Reader, Wire};

/// How deeply messages may nest. The tables themselves stay far below it.
const MAX_DEPTH: usize = 64;

/// The second in which Go's zero time lies (the first of January of the year 1): JSON has no value for it.
const GO_ZERO_SECOND: i64 = -62_135_596_800;

/// The first second of the year 0, before which RFC 3339 cannot write a time.
const FIRST_SECOND: i64 = -62_167_219_200;

/// The fields of one message.
pub(super) type Table = &'static [Field];

/// One row of a table.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in JSON; empty for an inlined message.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
}

/// How often a field occurs, and what its absence looks like in JSON.
#[derive(Debug)]
pub(super) enum Shape {
    /// A value that is left out when it is zero: Go writes it to the wire all the same.
    Omit(Type),
    /// A value that is kept even when it is zero: a pointer in Go, or a required field.
    Keep(Type),
    /// A value for each occurrence.
    List(Type),
    /// An object with an entry for each occurrence.
    Map(Type),
    /// A message whose fields stand in the object around it.
    Inline(&'static Table),
}

/// What a value means.
#[derive(Debug)]
pub(super) enum Type {
    String,
    Bytes,
    Int,
    Bool,
    /// A number with a fraction.
    Double,
    Message(&'static Table),
    /// A message of which JSON shows one field only; the function chooses it.
    Union(&'static Table, fn(Map<String, Value>) -> Value),
    /// A message with a list of strings only, which JSON writes as the list.
    Strings,
    /// A time in whole seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// A message with JSON text inside.
    Json,
}

/// A field that is left out when it is zero.
pub(super) const fn omit(number: u32, name: &'static str, ty: Type) -> Field {
    Field { number, name, shape: Shape::Omit(ty) }
}

/// A field that is kept when it is zero.
pub(super) const fn keep(number: u32, name: &'static str, ty: Type) -> Field {
    Field { number, name, shape: Shape::Keep(ty) }
}

pub(super) const fn list(number: u32, name: &'static str, ty: Type) -> Field {
    Field { number, name, shape: Shape::List(ty) }
}

/// A map from strings.
pub(super) const fn map(number: u32, name: &'static str, ty: Type) -> Field {
    Field { number, name, shape: Shape::Map(ty) }
}

/// A message whose fields stand in the object around it.
pub(super) const fn inline(number: u32, table: &'static Table) -> Field {
    Field { number, name: "", shape: Shape::Inline(table) }
}

/// Decodes a message into `object`. A message that occurs twice is merged, as protobuf asks.
pub(super) fn decode_into(object: &mut Map<String, Value>, table: Table, bytes: &[u8]) -> Result<(), Error> {
    merge(object, table, bytes, 0)
}

fn merge(object: &mut Map<String, Value>, table: Table, bytes: &[u8], depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        let Some(field) = table.iter().find(|field| field.number == number) else {
            continue;
        };
        match &field.shape {
            Shape::Omit(ty) => set(object, field.name, ty, wire, depth, is_zero)?,
            Shape::Keep(ty) => set(object, field.name, ty, wire, depth, |_| false)?,
            Shape::List(ty) => push(object, field.name, ty, wire, depth)?,
            Shape::Map(ty) => put(object, field.name, ty, wire, depth)?,
            Shape::Inline(table) => merge(object, table, expect_bytes(field.name, wire)?, depth + 1)?,
        }
    }
    Ok(())
}

/// A single value: the last occurrence counts, except that messages merge.
fn set(
    object: &mut Map<String, Value>,
    name: &'static str,
    ty: &Type,
    wire: Wire<'_>,
    depth: usize,
    drop_when: fn(&Value) -> bool,
) -> Result<(), Error> {
    let earlier = object.remove(name);
    let value = match (ty, earlier) {
        (Type::Message(table), Some(Value::Object(mut earlier))) => {
            merge(&mut earlier, table, expect_bytes(name, wire)?, depth + 1)?;
            Some(Value::Object(earlier))
        }
        _ => value(name, ty, wire, depth)?,
    };
    if let Some(value) = value.filter(|value| !drop_when(value)) {
        object.insert(name.to_owned(), value);
    }
    Ok(())
}

fn push(
    object: &mut Map<String, Value>,
    name: &'static str,
    ty: &Type,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), Error> {
    let slot = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(items) = slot else {
        return Err(Error::WrongType(name));
    };
    match (ty, wire) {
        // Go writes one tag for each number; other writers may pack them into one value.
        (Type::Int | Type::Bool, Wire::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while !reader.is_empty() {
                items.extend(value(name, ty, Wire::Varint(reader.varint()?), depth)?);
            }
        }
        _ => items.push(value(name, ty, wire, depth)?.unwrap_or(Value::Null)),
    }
    Ok(())
}

/// One entry of a map: a message with the key as field 1 and the value as field 2, either of which may be left out.
fn put(
    object: &mut Map<String, Value>,
    name: &'static str,
    ty: &Type,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), Error> {
    let (mut key, mut entry) = (String::new(), None);
    let mut reader = Reader::new(expect_bytes(name, wire)?);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = text(name, expect_bytes(name, wire)?)?,
            2 => entry = value(name, ty, wire, depth)?,
            _ => {}
        }
    }
    let slot = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(entries) = slot else {
        return Err(Error::WrongType(name));
    };
    entries.insert(key, entry.unwrap_or_else(|| zero(ty)));
    Ok(())
}

/// The JSON of one value, or `None` when the value says that there is none (an unset time).
fn value(name: &'static str, ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Option<Value>, Error> {
    Ok(Some(match ty {
        Type::String => text(name, expect_bytes(name, wire)?)?.into(),
        Type::Bytes => STANDARD.encode(expect_bytes(name, wire)?).into(),
        Type::Int => expect_int(name, wire)?.into(),
        Type::Bool => (expect_int(name, wire)? != 0).into(),
        Type::Message(table) => {
            let mut inner = Map::new();
            merge(&mut inner, table, expect_bytes(name, wire)?, depth + 1)?;
            inner.into()
        }
        Type::Double => double(name, wire)?,
        Type::Union(table, choose) => {
            let mut inner = Map::new();
            merge(&mut inner, table, expect_bytes(name, wire)?, depth + 1)?;
            choose(inner)
        }
        Type::Strings => strings(name, expect_bytes(name, wire)?)?,
        Type::Time => return time(name, expect_bytes(name, wire)?, false),
        Type::MicroTime => return time(name, expect_bytes(name, wire)?, true),
        Type::Quantity => quantity(name, expect_bytes(name, wire)?)?,
        Type::IntOrString => int_or_string(name, expect_bytes(name, wire)?)?,
        Type::Json => return json(name, expect_bytes(name, wire)?),
    }))
}

fn strings(name: &'static str, bytes: &[u8]) -> Result<Value, Error> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            items.push(Value::from(text(name, expect_bytes(name, wire)?)?));
        }
    }
    Ok(items.into())
}

fn time(name: &'static str, bytes: &[u8], micro: bool) -> Result<Option<Value>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => seconds = expect_int(name, wire)?,
            2 => nanos = expect_int(name, wire)?,
            _ => {}
        }
    }
    // A plain time is written in whole seconds, whatever else the wire says: that is what readers of JSON see.
    let nanos = if micro { nanos } else { 0 };
    if seconds == GO_ZERO_SECOND && nanos == 0 {
        return Ok(None);
    }
    if seconds < FIRST_SECOND || !(0..1_000_000_000).contains(&nanos) {
        return Err(Error::Time(name));
    }
    let at = i32::try_from(nanos)
        .ok()
        .and_then(|nanos| jiff::Timestamp::new(seconds, nanos).ok())
        .ok_or(Error::Time(name))?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(Some(at.strftime(format).to_string().into()))
}

fn quantity(name: &'static str, bytes: &[u8]) -> Result<Value, Error> {
    let mut amount = Value::from("0");
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            amount = text(name, expect_bytes(name, wire)?)?.into();
        }
    }
    Ok(amount)
}

fn int_or_string(name: &'static str, bytes: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut number_value, mut text_value) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => is_text = expect_int(name, wire)? == 1,
            2 => number_value = expect_int(name, wire)?,
            3 => text_value = text(name, expect_bytes(name, wire)?)?,
            _ => {}
        }
    }
    Ok(if is_text { text_value.into() } else { number_value.into() })
}

fn json(name: &'static str, bytes: &[u8]) -> Result<Option<Value>, Error> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            raw = expect_bytes(name, wire)?;
        }
    }
    if raw.is_empty() {
        return Ok(None);
    }
    // The parser has a recursion limit of its own.
    serde_json::from_slice(raw).map(Some).map_err(|source| Error::Json { field: name, source })
}

fn expect_bytes<'a>(name: &'static str, wire: Wire<'a>) -> Result<&'a [u8], Error> {
    match wire {
        Wire::Bytes(bytes) => Ok(bytes),
        Wire::Varint(_) | Wire::Fixed64(_) | Wire::Other => Err(Error::WrongType(name)),
    }
}

/// Negative numbers of any width stand on the wire as 64 bits, in two's complement.
fn expect_int(name: &'static str, wire: Wire<'_>) -> Result<i64, Error> {
    match wire {
        Wire::Varint(value) => Ok(value.cast_signed()),
        Wire::Bytes(_) | Wire::Fixed64(_) | Wire::Other => Err(Error::WrongType(name)),
    }
}

/// A whole number is written without a fraction, as Go writes it.
#[allow(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
fn double(name: &'static str, wire: Wire<'_>) -> Result<Value, Error> {
    /// Below this, each whole number has a value of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Wire::Fixed64(bits) = wire else { return Err(Error::WrongType(name)) };
    let number = f64::from_bits(bits);
    if number.fract() == 0.0 && number.abs() < EXACT {
        return Ok((number as i64).into());
    }
    // JSON has no infinity, and no value that is not a number.
    serde_json::Number::from_f64(number).map(Value::Number).ok_or(Error::WrongType(name))
}

fn text(name: &'static str, bytes: &[u8]) -> Result<String, Error> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Error::Text(name))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// What a map holds for a key that was sent without a value.
fn zero(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => "".into(),
        Type::Int | Type::IntOrString | Type::Double => 0.into(),
        Type::Bool => false.into(),
        Type::Message(_) => Map::new().into(),
        Type::Union(_, choose) => choose(Map::new()),
        Type::Strings => Vec::<Value>::new().into(),
        Type::Quantity => "0".into(),
        Type::Time | Type::MicroTime | Type::Json => Value::Null,
    }
}
