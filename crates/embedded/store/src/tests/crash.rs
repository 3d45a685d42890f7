//! A crash at any point loses nothing that was answered and leaves nothing half done.

use futures::future::join_all;
use proptest::prelude::*;

use super::super::sector::SECTOR;
use super::super::{Error, Options, Store, Write};
use super::disk::{Disk, Op, Unsynced, after_cut};
use super::model::Model;
use super::sequences::{Act, KEYS, act, assert_same, part, value, write};
use super::{create, run};

/// A run of the store with all that its disk was told.
pub struct Recording {
    pub ops: Vec<(usize, Op)>,
    model: Model,
    /// After so many operations, this revision and this compaction had been answered.
    pub answered: Vec<(usize, u64, u64)>,
}

/// Carries out the acts, several at a time, so that writes share commits.
pub async fn record(acts: &[Act], at_once: usize, journal_bytes: usize) -> Recording {
    let disk = Disk::default();
    let store = disk.store(Options { journal_bytes, ..Options::default() }).unwrap();
    let mut model = Model::new();
    let mut answered = Vec::new();
    for acts in acts.chunks(at_once) {
        let mut expected = Vec::new();
        let mut writes = Vec::new();
        let mut compact = None;
        for act in acts {
            match act {
                Act::Compact(to) => compact = Some(part(&model, *to)),
                act => {
                    let Some(write) = write(act, &model) else {
                        continue;
                    };
                    expected.push(model.write(&write));
                    writes.push(write);
                }
            }
        }
        let answers = join_all(writes.into_iter().map(|write| store.write(write))).await;
        for (answer, expected) in answers.iter().zip(&expected) {
            assert_same(answer, expected);
        }
        answered.push((disk.now(), model.revision(), model.compacted));
        if let Some(before) = compact {
            store.compact(before).await.unwrap();
            model.compact(before).unwrap();
            answered.push((disk.now(), model.revision(), model.compacted));
        }
    }
    store.close().await;
    Recording { ops: disk.ops(), model, answered }
}

impl Recording {
    async fn check_cut(&self, cut: usize, unsynced: Unsynced, prefixes: &[&str]) {
        let content = after_cut(&self.ops, cut, unsynced);
        let answered = self.answered.iter().rev().find(|(at, ..)| *at <= cut);
        let (_, revision, compacted) = answered.copied().unwrap_or((0, 1, 1));
        let folder = tempfile::tempdir().unwrap();
        let store = if content[0].iter().take(9).any(|byte| *byte != 0) {
            Disk::with(content).store(Options::default())
        } else {
            // The file was still being made, which `open` must see through.
            assert_eq!(revision, 1);
            let path = folder.path().join("store.db");
            let [tables, journal] = content;
            std::fs::write(&path, tables).unwrap();
            std::fs::write(path.with_extension("journal"), journal).unwrap();
            Store::open(&path, Options::default())
        };
        let store = store.unwrap_or_else(|error| panic!("cut at {cut}, {unsynced:?}: {error}"));
        let found = store.revision();
        let model = &self.model;
        assert!(revision <= found && found <= model.revision(), "cut at {cut}, {unsynced:?}: {found}");
        let mut model = model.back_to(found);
        model.compacted = store.inner.shared.snapshot().unwrap().compacted;
        assert!(compacted <= model.compacted && model.compacted <= self.model.compacted);
        model.check(&store, prefixes);
        // And it goes on from there.
        let next = create("and on", "it goes");
        assert_same(&store.write(next.clone()).await, &model.write(&next));
        let read = store.get("and on").unwrap();
        assert_eq!(read.as_ref(), model.current().get("and on"));
    }
}

#[test]
fn every_point_of_one_run() {
    run(async {
        let mut acts = Vec::new();
        for round in 0..3 {
            for key in 0..3 {
                let value = round * 40 + key as u8;
                acts.push(match round {
                    0 => Act::Create { key, value },
                    _ => Act::Update { key, right: true, value },
                });
            }
        }
        acts.extend([Act::Delete { key: 1, right: true, value: None }, Act::Compact(120)]);
        acts.extend([Act::Delete { key: 2, right: true, value: Some(9) }, Act::Create { key: 1, value: 8 }]);
        let recording = record(&acts, 2, 6 * SECTOR).await;
        for cut in 0..=recording.ops.len() {
            for unsynced in [Unsynced::Kept, Unsynced::Lost, Unsynced::Torn(cut as u64 * 7919 + 1)] {
                recording.check_cut(cut, unsynced, &[""]).await;
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_point_of_any_run(
        acts in prop::collection::vec(act(), 1..40),
        at_once in 1..6_usize,
        journal_bytes in prop_oneof![Just(0_usize), 200..6000_usize, Just(1 << 16)],
        cuts in prop::collection::vec((0..=1000_usize, any::<u64>()), 6),
    ) {
        run(async {
            let recording = record(&acts, at_once, journal_bytes).await;
            for (cut, seed) in cuts {
                let cut = recording.ops.len() * cut / 1000;
                recording.check_cut(cut, Unsynced::Torn(seed), &["", "a/"]).await;
            }
        });
    }
}

#[test]
fn a_cut_while_it_recovers_from_a_cut() {
    run(async {
        let acts: Vec<_> = (0..6).map(|key| Act::Create { key, value: key as u8 }).collect();
        let recording = record(&acts, 1, 1 << 16).await;
        let (cut, revision, _) = recording.answered[4];
        let disk = Disk::with(after_cut(&recording.ops, cut + 1, Unsynced::Torn(5)));
        let before = disk.content();
        drop(disk.store(Options::default()).unwrap());
        let recovery = disk.ops();
        for again in 0..=recovery.len() {
            // The recovery's own writes start from what the first cut left.
            let mut ops = Vec::new();
            for (file, data) in before.iter().cloned().enumerate() {
                let made = [Op::SetLen(data.len() as u64), Op::Write { offset: 0, data }, Op::Sync];
                ops.extend(made.map(|op| (file, op)));
            }
            let made = ops.len();
            ops.extend_from_slice(&recovery);
            let content = after_cut(&ops, made + again, Unsynced::Torn(again as u64 + 3));
            let store = Disk::with(content).store(Options::default()).unwrap();
            assert!(store.revision() >= revision);
            let kept = recording.model.back_to(store.revision());
            kept.check(&store, &[""]);
        }
    });
}

#[test]
fn compaction_that_was_cut_short_is_finished_after_opening() {
    run(async {
        let disk = Disk::default();
        let store = disk.store(Options::default()).unwrap();
        let mut revision = store.write(create(KEYS[0], "0")).await.unwrap();
        let updates = (0..700).map(|n| {
            let expect = revision + n;
            store.write(Write::Update { key: KEYS[0].to_owned(), expect, value: value(n as u8) })
        });
        for answer in join_all(updates).await {
            revision = answer.unwrap();
        }
        store.compact(revision).await.unwrap();
        // The answer comes with the first piece; the power goes right then.
        let cut = disk.now();
        store.close().await;
        let disk = Disk::with(after_cut(&disk.ops(), cut, Unsynced::Lost));
        let store = disk.store(Options::default()).unwrap();
        assert!(matches!(store.watch("", revision - 1), Err(Error::Compacted { .. })));
        super::within(async {
            while store.inner.shared.snapshot().unwrap().history_len() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(store.get(KEYS[0]).unwrap().unwrap().revision, revision);
        assert_eq!(store.revision(), revision);
    });
}
