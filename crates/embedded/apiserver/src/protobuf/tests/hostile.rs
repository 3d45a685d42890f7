//! Input that is cut, lies, or was never protobuf: an error each time, and nothing worse.

use proptest::prelude::*;
use serde_json::Map;

use super::{Encoder, body, empty};
use crate::protobuf::message::Type::Message;
use crate::protobuf::message::{Table, decode_into, omit};
use crate::protobuf::tables::KINDS;
use crate::protobuf::{Error, MAGIC, decode};

/// A message that may hold itself, which no message of the API does.
static NEST: Table = &[omit(1, "nest", Message(&NEST))];

#[track_caller]
fn check(bytes: &[u8], expect: &str) {
    assert_eq!(decode(bytes).unwrap_err().to_string(), expect);
}

fn config_map(object: Encoder) -> Vec<u8> {
    body("v1", "ConfigMap", object)
}

#[test]
fn a_body_without_the_prefix_is_refused() {
    let expect = "the body does not begin with the Kubernetes protobuf prefix: send it as `application/json`";
    check(b"", expect);
    check(b"k8s", expect);
    check(br#"{"kind":"ConfigMap"}"#, expect);
}

#[test]
fn an_unknown_kind_says_to_send_json() {
    check(
        &body("example.org/v1", "Widget", empty()),
        "`Widget` of `example.org/v1` is not understood in protobuf: send it as `application/json`",
    );
    check(MAGIC, "`` of `` is not understood in protobuf: send it as `application/json`");
    // The kind alone does not decide: the same name means another message in another group.
    assert!(matches!(decode(&body("apps/v1", "Pod", empty())), Err(Error::UnknownKind { .. })));
}

#[test]
fn a_name_of_any_length_makes_a_short_message() {
    let error = decode(&body("v1", &"x".repeat(1 << 20), empty())).unwrap_err();
    assert!(error.to_string().len() < 300);
}

#[test]
fn an_envelope_with_something_else_inside_is_refused() {
    let envelope = |number, text: &str| [MAGIC.as_slice(), &empty().bytes(number, text).0].concat();
    let expect = |text| {
        format!("the protobuf envelope holds `{text}` instead of protobuf: send the object as `application/json`")
    };
    check(&envelope(3, "gzip"), &expect("gzip"));
    check(&envelope(4, "application/json"), &expect("application/json"));
}

#[test]
fn every_prefix_of_a_body_is_an_error_or_a_smaller_object() {
    let whole = config_map(empty().message(1, empty().bytes(1, "a")).message(2, empty().bytes(1, "k").bytes(2, "v")));
    for length in 0..whole.len() {
        // The end of the type is the one place where the envelope may stop: an object without content.
        match decode(&whole[..length]) {
            Err(Error::Magic | Error::Truncated | Error::UnknownKind { .. }) => {}
            Ok(value) => assert_eq!(value.as_object().unwrap().len(), 2),
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
}

#[test]
fn a_length_that_lies_is_not_believed() {
    for length in [6, u64::from(u32::MAX), u64::MAX / 2, u64::MAX] {
        let lie = Encoder(vec![0x0a]).varint(length);
        assert!(matches!(decode(&config_map(lie.clone())), Err(Error::Truncated)), "{length}");
        assert!(matches!(decode(&[MAGIC.as_slice(), &lie.0].concat()), Err(Error::Truncated)), "{length}");
    }
}

#[test]
fn broken_wire_data_is_named() {
    let malformed = |what: &str| format!("the protobuf body is malformed: it has {what}");
    check(&config_map(Encoder(vec![0x00])), &malformed("the field number 0"));
    check(&config_map(Encoder(vec![0x0f])), &malformed("a wire type that does not exist"));
    check(&config_map(Encoder(vec![0x0c])), &malformed("the end of a group that was not begun"));
    check(&config_map(Encoder(vec![0x0b, 0x14])), &malformed("the end of a group that was not begun"));
    check(&config_map(Encoder(vec![0xff; 11])), &malformed("an integer of more than 64 bits"));
    check(
        &config_map(Encoder([&[0x80; 9][..], &[0x81, 0x01]].concat())),
        &malformed("an integer of more than ten bytes"),
    );
    check(&config_map(empty().varint(1 << 40)), &malformed("a field number that is too large"));
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    check(&config_map(empty().int(1, 1)), "the protobuf field `metadata` has a value of the wrong type");
    check(&config_map(empty().bytes(4, "true")), "the protobuf field `immutable` has a value of the wrong type");
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    check(
        &config_map(empty().message(2, empty().bytes(1, "k").bytes(2, [0xff]))),
        "the protobuf field `data` is not valid UTF-8: put binary data where bytes are allowed, such as `binaryData`",
    );
}

#[test]
fn times_and_json_that_cannot_be_are_refused() {
    let created = |seconds| config_map(empty().message(1, empty().message(8, empty().int(1, seconds))));
    for seconds in [i64::MIN, -62_167_219_201, 253_402_300_800, i64::MAX] {
        assert!(matches!(decode(&created(seconds)), Err(Error::Time("creationTimestamp"))), "{seconds}");
    }
    let renewed = |nanos| {
        let time = empty().int(1, 0).int(2, nanos);
        body("coordination.k8s.io/v1", "Lease", empty().message(2, empty().message(4, time)))
    };
    for nanos in [-1, 1_000_000_000, i64::MAX] {
        assert!(matches!(decode(&renewed(nanos)), Err(Error::Time("renewTime"))), "{nanos}");
    }
    let fields = empty().message(7, empty().bytes(1, "[".repeat(100_000)));
    let managed = config_map(empty().message(1, empty().message(17, fields)));
    assert!(matches!(decode(&managed), Err(Error::Json { field: "fieldsV1", .. })));
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| (0..levels).fold(empty(), |inner, _| empty().message(1, inner)).0;
    assert!(decode_into(&mut Map::new(), NEST, &nested(64)).is_ok());
    assert!(matches!(decode_into(&mut Map::new(), NEST, &nested(65)), Err(Error::TooDeep)));
    // Groups need one byte a level, so they are the cheapest way to try.
    assert!(matches!(decode(&config_map(Encoder(vec![0x7b; 1 << 20]))), Err(Error::TooDeep)));
}

/// Bytes that look like messages more often than random ones do.
fn nearly_protobuf() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (1u32..40, any::<i64>()).prop_map(|(number, value)| empty().int(number, value).0),
        (1u32..40, "[a-z0-9]{0,4}").prop_map(|(number, text)| empty().bytes(number, text).0),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        proptest::collection::vec((1u32..40, inner), 1..6).prop_map(|fields| {
            fields.into_iter().fold(empty(), |encoder, (number, value)| encoder.bytes(number, value)).0
        })
    })
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = decode(&bytes);
        let _ = decode(&[MAGIC.as_slice(), &bytes].concat());
    }

    #[test]
    fn no_object_makes_it_panic(kind in 0..KINDS.len(), bytes in nearly_protobuf()) {
        let (api_version, kind, _) = KINDS[kind];
        let _ = decode(&body(api_version, kind, Encoder(bytes)));
    }
}
