//! Any sequence of operations gives what the model gives.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Error, Options, Write};
use super::disk::Disk;
use super::model::Model;
use super::{drain, run};

/// Keys that are prefixes of each other, and neighbours in order.
pub const KEYS: [&str; 8] = ["a", "a/", "a/1", "a/10", "a/2", "a0", "b/1", "ü\0/x"];
pub const PREFIXES: [&str; 6] = ["", "a", "a/", "a/1", "b", "nothing"];

#[derive(Debug, Clone)]
pub enum Act {
    Create {
        key: usize,
        value: u8,
    },
    /// `right`: with the revision that the key has.
    Update {
        key: usize,
        right: bool,
        value: u8,
    },
    Delete {
        key: usize,
        right: bool,
        value: Option<u8>,
    },
    /// To a part of the way from the oldest revision to the newest, in 255ths.
    Compact(u8),
    Reopen,
    /// A watch from a part of the way, read at the end.
    Watch {
        prefix: usize,
        from: u8,
    },
}

pub fn act() -> impl Strategy<Value = Act> {
    let key = || 0..KEYS.len();
    prop_oneof![
        6 => (key(), any::<u8>()).prop_map(|(key, value)| Act::Create { key, value }),
        8 => (key(), prop::bool::weighted(0.9), any::<u8>())
            .prop_map(|(key, right, value)| Act::Update { key, right, value }),
        4 => (key(), prop::bool::weighted(0.9), any::<Option<u8>>())
            .prop_map(|(key, right, value)| Act::Delete { key, right, value }),
        1 => any::<u8>().prop_map(Act::Compact),
        1 => Just(Act::Reopen),
        2 => (0..PREFIXES.len(), any::<u8>()).prop_map(|(prefix, from)| Act::Watch { prefix, from }),
    ]
}

/// A value whose size differs as much as its content.
pub fn value(seed: u8) -> Bytes {
    Bytes::from(vec![seed; usize::from(seed) * 7 % 400])
}

/// The write that an act means in a state.
pub fn write(act: &Act, model: &Model) -> Option<Write> {
    let expect = |key: usize, right: bool| {
        let current = model.current().get(KEYS[key]).map_or(1, |entry| entry.revision);
        if right { current } else { current + 1 }
    };
    Some(match act {
        Act::Create { key, value: seed } => Write::Create { key: KEYS[*key].to_owned(), value: value(*seed) },
        Act::Update { key, right, value: seed } => {
            Write::Update { key: KEYS[*key].to_owned(), expect: expect(*key, *right), value: value(*seed) }
        }
        Act::Delete { key, right, value: seed } => {
            Write::Delete { key: KEYS[*key].to_owned(), expect: expect(*key, *right), value: seed.map(value) }
        }
        Act::Compact(_) | Act::Reopen | Act::Watch { .. } => return None,
    })
}

pub fn part(model: &Model, part: u8) -> u64 {
    model.compacted + (model.revision() - model.compacted) * u64::from(part) / 255
}

/// Compares answers; the errors that a precondition gives must be the same in full.
pub fn assert_same<T: PartialEq + std::fmt::Debug>(store: &Result<T, Error>, model: &Result<T, Error>) {
    assert_eq!(format!("{store:?}"), format!("{model:?}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_gives_what_the_model_gives(
        acts in prop::collection::vec(act(), 1..60),
        recent_bytes in prop_oneof![Just(0_usize), Just(2_000), Just(1 << 20)],
        journal_bytes in prop_oneof![Just(0_usize), Just(1_000), Just(1 << 16)],
    ) {
        run(async {
            let mut disk = Disk::default();
            let options = Options { recent_bytes, journal_bytes, ..Options::default() };
            let mut store = disk.store(options.clone()).unwrap();
            let mut model = Model::new();
            let mut watches = Vec::new();
            for act in &acts {
                match act {
                    Act::Compact(to) => {
                        let before = part(&model, *to);
                        assert_same(&store.compact(before).await, &model.compact(before));
                    }
                    Act::Reopen => {
                        store.close().await;
                        for (mut watch, _, _) in watches.drain(..) {
                            // What was in memory is still handed on, then it ends.
                            while super::within(super::Watch::next(&mut watch)).await.is_ok() {}
                        }
                        disk = Disk::with(disk.content());
                        store = disk.store(options.clone()).unwrap();
                    }
                    Act::Watch { prefix, from } => {
                        let from = part(&model, *from);
                        let watch = store.watch(PREFIXES[*prefix], from).unwrap();
                        watches.push((watch, PREFIXES[*prefix], from));
                    }
                    _ => {
                        let write = write(act, &model).unwrap();
                        let answer = store.write(write.clone()).await;
                        assert_same(&answer, &model.write(&write));
                    }
                }
            }
            model.check(&store, &PREFIXES);
            for (mut watch, prefix, from) in watches {
                match drain(&mut watch) {
                    Ok(events) => assert_eq!(events, model.events(prefix, from)),
                    Err(error) => {
                        assert!(matches!(error, Error::Compacted { .. }), "{error}");
                        assert!(from < model.compacted);
                    }
                }
            }
        });
    }
}
