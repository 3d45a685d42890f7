#![allow(clippy::unwrap_used, reason = "tests")]
//! What the store promises, held against a model of it.

mod basics;
mod concurrent;
mod crash;
mod damage;
mod disk;
mod failure;
mod kill;
mod model;
mod sequences;
mod watchers;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::{Error, Event, Extent, List, Page, Store, Watch, Write};

/// Runs a test that needs one thread, and fails when it hangs.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(within(test))
}

/// Fails when something that should happen does not.
async fn within<T>(wanted: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), wanted).await.expect("it should have happened by now")
}

fn create(key: &str, value: &str) -> Write {
    Write::Create { key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

fn update(key: &str, expect: u64, value: &str) -> Write {
    Write::Update { key: key.to_owned(), expect, value: Bytes::copy_from_slice(value.as_bytes()) }
}

fn delete(key: &str, expect: u64) -> Write {
    Write::Delete { key: key.to_owned(), expect, value: None }
}

/// Everything the watch has to hand on now.
fn drain(watch: &mut Watch) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    while let Some(batch) = watch.try_next()? {
        assert!(!batch.is_empty());
        events.extend(batch.iter().map(|event| (**event).clone()));
    }
    Ok(events)
}

/// All pages of a list, put together.
fn pages(store: &Store, prefix: &str, extent: Extent, at: u64) -> Result<Page, Error> {
    let mut all: Option<Page> = None;
    loop {
        let after = all.as_ref().map(|all| all.entries.last().unwrap().key.clone());
        let page = store.list(List { prefix, after: after.as_deref(), extent, at: Some(at) })?;
        if let Extent::Page(limit) = extent {
            assert!(page.entries.len() <= limit);
            assert_eq!(page.more, page.remaining.is_some());
            if let Some(all) = &all {
                assert_eq!(all.remaining.unwrap(), page.entries.len() as u64 + page.remaining.unwrap_or(0));
            }
        }
        let more = page.more;
        assert!(!more || !page.entries.is_empty(), "it does not get on");
        match &mut all {
            None => all = Some(page),
            Some(all) => {
                all.entries.extend(page.entries);
                all.remaining = page.remaining;
                all.more = page.more;
            }
        }
        if !more {
            return Ok(all.unwrap());
        }
    }
}
