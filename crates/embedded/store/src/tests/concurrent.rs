//! Many writers and watchers at once: every event once, in order.

use super::super::{Options, Store, Watch};
use super::{create, update, within};

const WRITERS: u64 = 8;
const WRITES: u64 = 2_500;

#[test]
fn eight_writers_and_their_watchers_agree_on_every_event() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // Room for a few hundred events only, so that watchers also read the file.
        let options = Options { recent_bytes: 100_000, ..Options::default() };
        let store = Store::with_backend(redb::backends::InMemoryBackend::new(), None, options).unwrap();
        let all = WRITERS * WRITES;
        let end = 1 + all;
        let mut watchers = Vec::new();
        for n in 0..12 {
            let (prefix, expected) = match n % 3 {
                0 => (String::new(), all),
                1 => (format!("w{}/", n % WRITERS), WRITES),
                _ => ("nobody writes this".to_owned(), 0),
            };
            watchers.push(tokio::spawn(watch(store.clone(), prefix, 1, expected)));
        }
        let mut half = store.watch("", 1).unwrap();
        let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
        // Some join late, from the past.
        while half.progress() < end / 2 {
            within(half.next()).await.unwrap();
        }
        watchers.push(tokio::spawn(watch(store.clone(), String::new(), 1, all)));
        watchers.push(tokio::spawn(watch(store.clone(), String::new(), end / 2, end - end / 2)));
        for writer in writers {
            within(writer).await.unwrap();
        }
        assert_eq!(store.revision(), end);
        for watcher in watchers {
            let watch = within(watcher).await.unwrap();
            assert_eq!(watch.progress(), end, "and nothing comes after what was expected");
        }
        store.close().await;
    });
}

async fn write(store: Store, writer: u64) {
    let value = "v".repeat(100);
    let mut last = None;
    for n in 0..WRITES {
        let key = format!("w{writer}/{}", n / 5);
        // Each key is created, then updated four times.
        last = Some(match last.filter(|_| n % 5 != 0) {
            None => store.write(create(&key, &value)).await.unwrap(),
            Some(last) => store.write(update(&key, last, &value)).await.unwrap(),
        });
    }
}

/// Reads as many events as are expected; each must be newer than the one before, and readable when it comes.
async fn watch(store: Store, prefix: String, from: u64, expected: u64) -> Watch {
    let mut watch = store.watch(&prefix, from).unwrap();
    let mut last = from;
    let mut count = 0;
    while count < expected {
        for event in within(watch.next()).await.unwrap() {
            assert!(event.revision > last && event.key.starts_with(&prefix));
            assert!(!prefix.is_empty() || event.revision == last + 1, "none is left out");
            last = event.revision;
            count += 1;
        }
        assert!(store.revision() >= last);
    }
    assert_eq!(count, expected);
    watch
}
