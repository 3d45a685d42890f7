//! A real process on a real file, killed with SIGKILL while it writes.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::{EventKind, Options, Store};
use super::{create, drain, run, update};

const PATH: &str = "KNOLL_STORE_KILL_PATH";
const WRITERS: usize = 4;
const ROUNDS: usize = 4;
const ANSWERS_A_ROUND: usize = 60;

/// What the killed process runs; without the variable it is no test at all.
#[test]
fn writer_process() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let store = Store::open(Path::new(&path), Options::default()).unwrap();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| runtime.spawn(write_forever(store.clone(), format!("k/{writer}")))).collect();
    runtime.block_on(futures::future::join_all(writers));
}

async fn write_forever(store: Store, key: String) {
    let mut last = store.get(&key).unwrap().map(|entry| entry.revision);
    for n in 0_u64.. {
        let value = format!("{n} {}", "x".repeat((n % 5000) as usize));
        let write = match last {
            None => create(&key, &value),
            Some(last) => update(&key, last, &value),
        };
        let revision = store.write(write).await.unwrap();
        last = Some(revision);
        // One call, so that a line is written whole or not at all.
        let line = format!("answered {revision} {key} {n}\n");
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn kill_9_loses_nothing_that_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut answered: Vec<(u64, String, String)> = Vec::new();
    for _ in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::kill::writer_process", "--nocapture", "--test-threads=1"])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            // The test runner's own words may stand before the first one.
            let Some(at) = line.find("answered ") else {
                continue;
            };
            let words: Vec<_> = line[at..].split(' ').collect();
            let &[_, revision, key, n] = words.as_slice() else { panic!("{line}") };
            answered.push((revision.parse().unwrap(), key.to_owned(), n.to_owned()));
            lines += 1;
            if lines == ANSWERS_A_ROUND {
                // What it answers until the signal arrives is read until the pipe ends.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(lines >= ANSWERS_A_ROUND, "the writing process ended by itself after {lines} answers");
        check(&path, &answered);
    }
}

fn check(path: &Path, answered: &[(u64, String, String)]) {
    run(async {
        let store = Store::open(path, Options::default()).unwrap();
        let newest = store.revision();
        let mut watch = store.watch("", 1).unwrap();
        let events = drain(&mut watch).unwrap();
        assert_eq!(events.len() as u64, newest - 1, "every revision has its event");
        for (revision, key, n) in answered {
            let event = &events[*revision as usize - 2];
            assert_eq!((event.revision, &event.key, event.kind), (*revision, key, EventKind::Put));
            assert_eq!(event.value.split(|byte| *byte == b' ').next().unwrap(), n.as_bytes());
        }
        for entry in store.list(super::List::default()).unwrap().entries {
            let last = events.iter().rfind(|event| event.key == entry.key).unwrap();
            assert_eq!((entry.revision, &entry.value), (last.revision, &last.value));
        }
        store.close().await;
    });
}
