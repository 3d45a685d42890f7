//! Many objects: pages that are one consistent list, and a watch that misses nothing while 8 writers write. There are
//! 100,000 of them for `cargo xtask test --thorough`; in a debug build that takes minutes, so there are fewer otherwise.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::collections::HashMap;
use std::time::Duration;

use cluster::TestCluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

const WRITERS: usize = 8;
const CHANGES: usize = 500;
const ONLOOKERS: usize = 30;
/// How many objects a page has.
const PAGE: u32 = 1_500;

fn objects() -> usize {
    if std::env::var_os("KNOLL_TEST_THOROUGH").is_some() { 100_000 } else { 5_000 }
}

fn name(number: usize) -> String {
    format!("c{number:06}")
}

async fn fill(client: &Client, count: usize) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    futures::stream::iter(0..count)
        .for_each_concurrent(64, |at| {
            let api = api.clone();
            async move {
                let object = ConfigMap {
                    metadata: ObjectMeta { name: Some(name(at)), ..ObjectMeta::default() },
                    data: Some([("n".to_owned(), at.to_string())].into()),
                    ..ConfigMap::default()
                };
                api.create(&PostParams::default(), &object).await.unwrap();
            }
        })
        .await;
}

#[test]
fn many_objects_are_listed_in_pages_and_watched() {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        let client = cluster.cluster().client();
        let work = async {
            fill(&client, objects()).await;
            pages(&client, objects()).await;
            watch_while_writing(&client).await;
        };
        tokio::time::timeout(Duration::from_secs(240), work).await.expect("it must not hang");
    });
}

/// The pages together are the list of the moment when the first page was read.
async fn pages(client: &Client, count: usize) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut seen: Vec<String> = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    let last = name(count - 1);
    let mut deleted = false;
    loop {
        let page = api.list(&params).await.unwrap();
        seen.extend(page.items.iter().map(ResourceExt::name_any).filter(|n| n.starts_with('c')));
        // A write between two pages is not part of this list.
        if !deleted {
            api.delete(&last, &DeleteParams::default()).await.unwrap();
            deleted = true;
        }
        match page.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), count);
    assert!(seen.is_sorted());
    assert_eq!(seen.last(), Some(&last));
}

/// Every change of every writer arrives, once, in the order of its object's changes.
async fn watch_while_writing(client: &Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let from = api.list(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
    let expected = WRITERS * CHANGES;
    // Where many look on, events are sent several at once.
    let params = WatchParams::default();
    let others = futures::future::join_all((0..ONLOOKERS).map(|_| api.watch(&params, &from))).await;
    assert!(others.iter().all(Result::is_ok));
    let watching = {
        let api = api.clone();
        async move {
            let mut stream = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
            let mut last: HashMap<String, u64> = HashMap::new();
            let mut newest = 0;
            let mut count = 0;
            while count < expected {
                match stream.try_next().await.unwrap().expect("the watch goes on") {
                    WatchEvent::Added(o) | WatchEvent::Modified(o) | WatchEvent::Deleted(o) => {
                        let revision: u64 = o.resource_version().unwrap().parse().unwrap();
                        assert!(revision > newest, "revisions only grow");
                        newest = revision;
                        let step: u64 = o.data.as_ref().unwrap()["step"].parse().unwrap();
                        let before = last.insert(o.name_any(), step).unwrap_or(0);
                        assert_eq!(step, before + 1, "{}: none is missed and none comes twice", o.name_any());
                        count += 1;
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(error) => panic!("{error:?}"),
                }
            }
            count
        }
    };
    let writing = futures::future::join_all((0..WRITERS).map(|writer| {
        let api = api.clone();
        async move {
            for change in 0..CHANGES {
                let name = name(writer * 100 + change % 100);
                let step = (change / 100 + 1).to_string();
                let patch = Patch::Merge(json!({"data": {"step": step}}));
                api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
        }
    }));
    let (count, _) = tokio::join!(watching, writing);
    assert_eq!(count, expected);
}
