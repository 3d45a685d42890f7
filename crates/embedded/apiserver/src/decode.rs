//! Reading JSON and YAML with the complaints that a Go server has about them, which clients show to people word by word.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value, and the fields that its text has more than once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The value; of a repeated field, the last one.
    pub value: Value,
    /// The paths of repeated fields, as Kubernetes names them.
    pub duplicates: Vec<String>,
}

impl From<Value> for Decoded {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new() }
    }
}

/// Reads JSON; the error is the sentence of Go's decoder.
pub fn json(bytes: &[u8]) -> Result<Decoded, String> {
    let found = Duplicates::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = Seed(&found).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match read {
        Ok(value) => Ok(Decoded { value, duplicates: found.duplicates.into_inner() }),
        Err(error) => Err(syntax_error(bytes).unwrap_or_else(|| error.to_string())),
    }
}

/// Reads YAML, of which JSON is a part. `strict` refuses repeated keys.
pub fn yaml(bytes: &[u8], strict: bool) -> Result<Value, YamlError> {
    if let Ok(read) = json(bytes)
        && read.duplicates.is_empty()
    {
        return Ok(read.value);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| YamlError::Syntax("yaml: invalid UTF-8".to_owned()))?;
    let policy =
        if strict { serde_saphyr::DuplicateKeyPolicy::Error } else { serde_saphyr::DuplicateKeyPolicy::LastWins };
    let options = serde_saphyr::options! { duplicate_keys: policy };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let first = error.to_string();
        let first = first.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let line = first.strip_prefix("line ").and_then(|rest| rest.split(' ').next()).unwrap_or("1").to_owned();
        let what = first.split_once(": ").map_or(first.as_str(), |(_, what)| what);
        match what.strip_prefix("duplicate mapping key: ") {
            Some(rest) => {
                let key = rest.split(',').next().unwrap_or_default();
                YamlError::Duplicate(format!(
                    "yaml: unmarshal errors:\n  line {line}: key \"{key}\" already set in map"
                ))
            }
            None => YamlError::Syntax(format!("yaml: line {line}: {what}")),
        }
    })
}

/// What is wrong with a YAML text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YamlError {
    /// It is no YAML.
    Syntax(String),
    /// A key comes twice.
    Duplicate(String),
}

/// The beginning of a body, as it is quoted to whom sent it.
pub fn summary(bytes: &[u8]) -> String {
    const LONGEST: usize = 30;
    let cut = &bytes[..bytes.len().min(LONGEST)];
    let more = if bytes.len() > LONGEST { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(cut)),
        Some(_) => format!("{}{more}", cut.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

#[derive(Default)]
struct Duplicates {
    path: RefCell<String>,
    duplicates: RefCell<Vec<String>>,
}

struct Seed<'a>(&'a Duplicates);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let length = self.0.path.borrow().len();
        loop {
            self.0.path.borrow_mut().push_str(&format!("[{}]", list.len()));
            let item = items.next_element_seed(Seed(self.0))?;
            self.0.path.borrow_mut().truncate(length);
            match item {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let length = self.0.path.borrow().len();
            {
                let mut path = self.0.path.borrow_mut();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(&key);
            }
            let value = entries.next_value_seed(Seed(self.0))?;
            if map.insert(key, value).is_some() {
                let mut duplicates = self.0.duplicates.borrow_mut();
                let path = self.0.path.borrow().clone();
                if !duplicates.contains(&path) {
                    duplicates.push(path);
                }
            }
            self.0.path.borrow_mut().truncate(length);
        }
        Ok(map.into())
    }
}

/// What Go's scanner says of a text that is no JSON. `None`: it finds nothing wrong with it.
fn syntax_error(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes, at: 0, depth: 0 };
    let result = scanner.value("looking for beginning of value").and_then(|()| {
        scanner.space();
        match scanner.peek() {
            None => Ok(()),
            Some(_) => Err(scanner.unexpected("after top-level value")),
        }
    });
    result.err()
}

/// How deep a text may be nested: what is refused for its depth must not cost the stack to describe.
const DEEPEST: usize = 128;

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {context}", quote(byte)),
        }
    }

    fn value(&mut self, context: &str) -> Result<(), String> {
        if self.depth == DEEPEST {
            return Err("exceeded max depth".to_owned());
        }
        self.depth += 1;
        self.space();
        let result = match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected(context)),
        };
        self.depth -= 1;
        result
    }

    fn object(&mut self) -> Result<(), String> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.value("looking for beginning of value")?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<(), String> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value("looking for beginning of value")?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u') => self.at += 1,
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                Some(byte) if byte >= 0x20 => self.at += 1,
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        for (at, expected) in word.bytes().enumerate() {
            if self.peek() != Some(expected) {
                let expected = quote(expected);
                debug_assert!(at > 0, "the first letter was seen");
                return Err(self.unexpected(&format!("in literal {word} (expecting {expected})")));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }
}

fn quote(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(byte)),
        b'\n' => "'\\n'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        byte if byte < 0x80 => format!("'\\x{byte:02x}'"),
        byte if byte < 0xa0 => format!("'\\u{:04x}'", u32::from(byte)),
        byte => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn syntax_errors_are_told_as_go_tells_them() {
        for (text, expect) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("{a: 1}", "invalid character 'a' looking for beginning of object key string"),
            ("{}{}", "invalid character '{' after top-level value"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 1}", "invalid character '1' after object key:value pair"),
            ("nul", "unexpected end of JSON input"),
            ("nulx", "invalid character 'x' in literal null (expecting 'l')"),
            ("1.", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
        ] {
            assert_eq!(json(text.as_bytes()), Err(expect.to_owned()), "{text}");
        }
    }

    #[test]
    fn repeated_fields_are_found() {
        let read = json(br#"{"a":{"b":1,"b":2},"l":[{"x":1},{"x":1,"x":2}],"a":3}"#);
        let expect = Decoded {
            value: json!({"a": 3, "l": [{"x": 1}, {"x": 2}]}),
            duplicates: vec!["a.b".into(), "l[1].x".into(), "a".into()],
        };
        assert_eq!(read, Ok(expect));
        let twice = yaml(b"a: 1\na: 2\n", true);
        let expect = "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map";
        assert_eq!(twice, Err(YamlError::Duplicate(expect.to_owned())));
        assert_eq!(yaml(b"a: 1\na: 2\n", false), Ok(json!({"a": 2})));
    }
}
