//! When a source outside of the cluster is fetched again.

use std::time::Duration;

use knoll_api::source::{ArchiveSource, GitSource, LocalRef, Source};

use super::*;

fn git(interval: Option<&str>) -> Stack {
    let mut stack = named("net");
    stack.spec.source = Source {
        git: Some(GitSource {
            url: "https://example.com/net.git".to_owned(),
            interval: interval.map(|interval| interval.parse().unwrap()),
            secret_ref: Some(LocalRef { name: "git".to_owned() }),
            ..GitSource::default()
        }),
        ..Source::default()
    };
    stack
}

fn fetched(request: &FetchRequest, revision: &str) -> Fetched {
    Fetched { source: request.source.clone(), revision: revision.to_owned(), bundle: format!("bundle-{revision}") }
}

#[test]
fn a_success_waits_for_the_interval_and_a_failure_for_the_backoff() {
    let request = FetchRequest::of(&git(Some("30s")), "v1").unwrap();
    let mut record = FetchRecord::default();
    let started = record.start(&request, None, at(0)).unwrap();
    assert_eq!(started.known, None);
    assert_eq!(record.start(&request, None, at(1)), None, "one fetch at a time");
    assert_eq!(record.source(), RemoteSource::default());
    record.finish(&request, Ok::<_, String>(fetched(&request, "c1")), at(2));
    assert_eq!(record.source().next, Some(at(32)));
    assert_eq!(record.start(&request, None, at(31)), None);
    let again = record.start(&request, None, at(32)).unwrap();
    assert_eq!(again.known, Some(KnownFetch { fetched: fetched(&request, "c1"), verified: true }));
    let mut now = 32;
    for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
        record.finish(&request, Err("nobody answers"), at(now));
        let source = record.source();
        assert_eq!((source.next, source.error.as_deref()), (Some(at(now + wait)), Some("Nobody answers.")));
        assert_eq!(source.fetched, Some(fetched(&request, "c1")), "what was fetched stays known");
        now += wait;
        assert!(record.start(&request, None, at(now)).is_some());
    }
}

#[test]
fn another_request_is_fetched_at_once_and_the_late_result_of_the_old_one_is_ignored() {
    let old = FetchRequest::of(&git(None), "v1").unwrap();
    let new = FetchRequest::of(&git(None), "v2").unwrap();
    assert_eq!(old.source, new.source, "credentials are no part of the source");
    let mut record = FetchRecord::default();
    record.start(&old, None, at(0)).unwrap();
    assert_eq!(record.start(&new, None, at(1)), None);
    record.finish(&old, Err("refused"), at(2));
    assert_eq!(record.source(), RemoteSource { next: Some(at(1)), ..RemoteSource::default() });
    assert!(record.start(&new, None, at(2)).is_some());
    let mut asked = git(None);
    asked.annotations_mut().insert(annotation::RECONCILE.to_owned(), "now".to_owned());
    assert_ne!(FetchRequest::of(&asked, "v2").unwrap(), new);
}

#[test]
fn a_published_result_is_used_if_it_is_of_this_source() {
    let request = FetchRequest::of(&git(None), "").unwrap();
    let published = fetched(&request, "c1");
    let mut record = FetchRecord::default();
    let started = record.start(&request, Some(&published), at(0)).unwrap();
    assert_eq!(started.known, Some(KnownFetch { fetched: published.clone(), verified: false }));
    let mut other = git(None);
    other.spec.source.git.as_mut().unwrap().path = Some("live".to_owned());
    let request = FetchRequest::of(&other, "").unwrap();
    let mut record = FetchRecord::default();
    assert_eq!(record.start(&request, Some(&published), at(0)).unwrap().known, None);
    assert_eq!(record.source().fetched, None);
}

#[test]
fn an_archive_is_fetched_once_and_a_source_in_the_cluster_never() {
    let mut stack = named("net");
    assert_eq!(FetchRequest::of(&stack, ""), None);
    stack.spec.source = Source { archive: Some(ArchiveSource::default()), ..Source::default() };
    let request = FetchRequest::of(&stack, "").unwrap();
    let mut record = FetchRecord::default();
    record.start(&request, None, at(0)).unwrap();
    record.finish(&request, Ok::<_, String>(fetched(&request, "sha256:1")), at(1));
    assert_eq!((record.source().next, record.start(&request, None, at(1_000_000))), (None, None));
    let git = FetchRequest::of(&git(None), "").unwrap();
    let mut record = FetchRecord::default();
    record.start(&git, None, at(0)).unwrap();
    record.finish(&git, Ok::<_, String>(fetched(&git, "c1")), at(0));
    assert_eq!(record.source().next, at(0).checked_add(Duration::from_secs(60)).ok());
}

#[test]
fn inputs_are_known_without_reading_when_something_is_missing() {
    let stack = git(None);
    let known = |stack: &Stack, remote: RemoteSource| Inputs::known(stack, Some(&remote), &[]);
    assert_eq!(known(&stack, RemoteSource::default()), Some(Inputs::Fetching));
    let failed = RemoteSource { error: Some("Refused.".to_owned()), ..RemoteSource::default() };
    let cause = Cause::new(reason::SOURCE_FAILED, "Refused.");
    assert_eq!(known(&stack, failed.clone()), Some(Inputs::Unresolved(cause)));
    // Files that were fetched before count although the source cannot be reached now.
    let request = FetchRequest::of(&stack, "").unwrap();
    assert_eq!(known(&stack, RemoteSource { fetched: Some(fetched(&request, "c1")), ..failed }), None);
    let mut deleted = stack;
    deleted.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(known(&deleted, RemoteSource::default()), Some(Inputs::Waiting));
}
