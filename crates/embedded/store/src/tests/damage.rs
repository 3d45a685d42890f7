//! A journal that was changed on the disk: every answered write is there, or the store does not open.

use proptest::prelude::*;

use super::super::sector::SECTOR;
use super::super::{Error, Options, Store};
use super::crash::record;
use super::disk::{Content, Disk, Unsynced, after_cut};
use super::sequences::act;
use super::{create, run};

/// A journal of eight sectors, so that a few writes fill it and it begins again.
fn options() -> Options {
    Options { journal_bytes: 8 * SECTOR, ..Options::default() }
}

/// What the disk holds when the process is killed after it has answered writes of these sizes, and the newest revision.
async fn killed(sizes: &[usize]) -> (Content, u64) {
    let disk = Disk::default();
    let store = disk.store(options()).unwrap();
    let mut revision = 1;
    for (n, size) in sizes.iter().enumerate() {
        revision = store.write(create(&format!("k/{n}"), &"x".repeat(*size))).await.unwrap();
    }
    let cut = disk.now();
    store.close().await;
    (after_cut(&disk.ops(), cut, Unsynced::Kept), revision)
}

/// Whether the store opened. It has everything then.
fn opens(content: Content, revision: u64) -> bool {
    match Disk::with(content).store(options()) {
        Ok(store) => {
            assert_eq!((store.revision(), store.count("").unwrap()), (revision, revision - 1));
            true
        }
        Err(Error::DamagedJournal { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

/// The first fills the journal and begins again, so that older records lie behind the newer ones.
const RUNS: [&[usize]; 3] = [&[900, 100, 900, 900, 300, 10, 700], &[10, 700], &[3000]];

#[test]
fn a_flipped_bit_loses_no_answered_write_silently() {
    run(async {
        // Each bit takes a whole opening; a prime step samples all places in a byte and in a sector.
        let step = if std::env::var_os("KNOLL_TEST_THOROUGH").is_some() { 1 } else { 61 };
        for sizes in RUNS {
            let (content, revision) = killed(sizes).await;
            assert!(opens(content.clone(), revision));
            let mut refused = 0;
            for bit in (0..content[1].len() * 8).step_by(step) {
                let mut content = content.clone();
                content[1][bit / 8] ^= 1 << (bit % 8);
                refused += usize::from(!opens(content, revision));
            }
            assert!(refused > 0, "{sizes:?}");
        }
    });
}

#[test]
fn a_lost_sector_is_found_by_the_answered_writes_behind_it() {
    run(async {
        let (content, revision) = killed(&[10, 900, 10]).await;
        for sector in 0..4 {
            let mut content = content.clone();
            content[1][sector * SECTOR..(sector + 1) * SECTOR].fill(0);
            assert!(!opens(content, revision), "sector {sector}");
        }
        let mut shorter = content;
        shorter[1].truncate(5 * SECTOR);
        assert!(!opens(shorter, revision), "the sectors behind the last record may have held another one");
    });
}

#[test]
fn tables_from_before_the_journal_are_refused() {
    run(async {
        let (mut content, revision) = killed(RUNS[0]).await;
        let ([tables, _], _) = killed(&[]).await;
        content[0] = tables;
        assert!(!opens(content, revision));
    });
}

#[test]
fn what_is_said_of_a_damaged_journal_names_the_file_and_the_place() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let (mut content, _) = killed(&[900, 10]).await;
        content[1][SECTOR + 100] ^= 4;
        let [tables, journal] = content;
        std::fs::write(&path, tables).unwrap();
        let journal_path = path.with_extension("journal");
        std::fs::write(&journal_path, journal).unwrap();
        let error = Store::open(&path, options()).unwrap_err().to_string();
        let expected = format!(
            "the store's journal `{}` is damaged at byte 512: its checksum is wrong; restore the store's files from a copy, or move the journal away to go on at revision 1 without the writes after it",
            journal_path.display()
        );
        assert_eq!(error, expected);
        std::fs::rename(&journal_path, folder.path().join("aside")).unwrap();
        let store = Store::open(&path, options()).unwrap();
        assert_eq!(store.revision(), 1);
    });
}

/// A store that is opened again after its first record was torn writes that record once more.
#[test]
fn two_attempts_at_a_record_are_not_mixed() {
    run(async {
        let disk = Disk::default();
        drop(disk.store(options()).unwrap());
        let before = disk.content();
        let mut attempts = Vec::new();
        for value in ["a", "b"] {
            let disk = Disk::with(before.clone());
            let store = disk.store(options()).unwrap();
            store.write(create("k", &value.repeat(1000))).await.unwrap();
            attempts.push(disk.content()[1].clone());
        }
        for mask in 0_usize..8 {
            let mut content = before.clone();
            for sector in 0..3 {
                let place = sector * SECTOR..(sector + 1) * SECTOR;
                content[1][place.clone()].copy_from_slice(&attempts[mask >> sector & 1][place]);
            }
            let store = Disk::with(content).store(options()).unwrap();
            assert_eq!(store.revision(), if matches!(mask, 0 | 7) { 2 } else { 1 }, "{mask:b}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_flipped_bit_after_any_cut_of_any_run(
        acts in prop::collection::vec(act(), 1..40),
        at_once in 1..6_usize,
        sectors in 1..10_usize,
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>()), 8),
    ) {
        run(async {
            let recording = record(&acts, at_once, sectors * SECTOR).await;
            for (cut, bit, seed) in places {
                let cut = cut.index(recording.ops.len() + 1);
                let mut content = after_cut(&recording.ops, cut, Unsynced::Torn(seed));
                let answered = recording.answered.iter().rev().find(|(at, ..)| *at <= cut);
                let Some((_, revision, _)) = answered else { continue };
                let bit = bit.index(content[1].len() * 8);
                content[1][bit / 8] ^= 1 << (bit % 8);
                match Disk::with(content).store(Options::default()) {
                    Ok(store) => prop_assert!(store.revision() >= *revision, "{} of {revision}", store.revision()),
                    Err(error) => prop_assert!(matches!(error, Error::DamagedJournal { .. }), "{error}"),
                }
            }
            Ok(())
        })?;
    }
}
