//! The page on an embedded cluster: who sees what, who may do what, and what becomes of hostile input.

#![allow(clippy::unwrap_used, reason = "tests")]

mod hostile;
mod world;

use futures::StreamExt;
use knoll_api::Approval;
use knoll_api::approval::Decision;
use knoll_api::run::{RunPhase, RunStatus};
use kube::api::ListParams;
use reqwest::{StatusCode, header};
use serde_json::{Value, json};
use world::{DEADLINE, World, field, running};

const TEXT: &str = "Terraform will perform the following actions:\n\n  # terraform_data.a will be created\n  + resource \"terraform_data\" \"a\" {\n      + input = \"<script>alert(1)</script>\"\n    }\n\nPlan: 1 to add, 0 to change, 0 to destroy.\n";

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_decide_sees_the_buttons_and_a_forged_post_is_refused() {
    let world = World::start().await;
    let run = world.run_in_review("r", TEXT).await;
    let digest = run.status.unwrap().review_digest.unwrap();
    let viewer = world.signed_in(&world.token("viewer", &["knoll-viewer"]).await).await;
    let approver = world.signed_in(&world.token("approver", &["knoll-viewer", "knoll-approver"]).await).await;

    let (status, page) = viewer.read("/runs/default/r/plan").await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert!(page.contains("You may not decide") && !page.contains("Approve and apply"), "{page}");
    let csrf = field(&page, "csrf");
    let forged = [("csrf", csrf.as_str()), ("decision", "Approve"), ("digest", digest.as_str())];
    let answer = viewer.post("/runs/default/r/decision", &forged).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let (_, run_page) = viewer.read("/runs/default/r").await;
    assert!(!run_page.contains("Cancel run"));

    let (_, page) = approver.read("/runs/default/r/plan").await;
    assert!(page.contains("Approve and apply"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains("<script>alert"), "{page}");
    let own = field(&page, "csrf");
    let fields =
        |csrf, digest| [("csrf", csrf), ("decision", "Approve"), ("digest", digest), ("comment", "looks <b>right</b>")];
    for (csrf, digest, expect) in [
        ("", digest.as_str(), StatusCode::FORBIDDEN),
        (csrf.as_str(), digest.as_str(), StatusCode::FORBIDDEN),
        (own.as_str(), "sha256:0", StatusCode::CONFLICT),
    ] {
        let answer = approver.post("/runs/default/r/decision", &fields(csrf, digest)).send().await.unwrap();
        assert_eq!(answer.status(), expect, "{}", answer.text().await.unwrap());
    }
    let without_field = [("decision", "Approve"), ("digest", digest.as_str())];
    let answer = approver.post("/runs/default/r/decision", &without_field).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let foreign = approver
        .post("/runs/default/r/decision", &fields(&own, &digest))
        .header(header::ORIGIN, "https://evil.example");
    assert_eq!(foreign.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    assert!(world.api::<Approval>().list(&ListParams::default()).await.unwrap().items.is_empty());

    let answer = approver.post("/runs/default/r/decision", &fields(&own, &digest)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    let approvals = world.api::<Approval>().list(&ListParams::default()).await.unwrap().items;
    let spec = &approvals[0].spec;
    assert_eq!((approvals.len(), spec.decision), (1, Decision::Approve));
    assert_eq!((spec.by.as_str(), spec.digest.as_str()), ("system:serviceaccount:default:approver", digest.as_str()));
    let (_, page) = viewer.read("/runs/default/r").await;
    assert!(page.contains("looks &lt;b&gt;right&lt;/b&gt;"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_whose_text_was_changed_cannot_be_approved() {
    let world = World::start().await;
    let run = world.run_in_review("r", TEXT).await;
    let mut status = run.status.unwrap();
    let digest = status.review_digest.clone().unwrap();
    status.plan.as_mut().unwrap().text_digest = Some(knoll_api::Digest::of("another").to_string());
    world.set_status("r", &status).await;
    let approver = world.signed_in(&world.token("approver", &["knoll-viewer", "knoll-approver"]).await).await;
    let (_, page) = approver.read("/runs/default/r/plan").await;
    assert!(!page.contains("Approve and apply") && page.contains("value=\"Discard\""), "{page}");
    let csrf = field(&page, "csrf");
    for (decision, expect) in [("Approve", StatusCode::CONFLICT), ("Discard", StatusCode::SEE_OTHER)] {
        let fields = [("csrf", csrf.as_str()), ("decision", decision), ("digest", digest.as_str())];
        assert_eq!(approver.post("/runs/default/r/decision", &fields).send().await.unwrap().status(), expect);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_signs_in_once_and_nobody_else_sees_anything() {
    let world = World::start().await;
    world.run("r").await;
    let token = world.token("viewer", &["knoll-viewer"]).await;
    let nobody = world.browser();
    let answer = nobody.get("/runs/default/r").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(answer.headers()[header::LOCATION], "/sign-in?next=/runs/default/r");
    assert_eq!(nobody.read("/api/runs/default/r").await.0, StatusCode::UNAUTHORIZED);
    let wrong = nobody.post("/sign-in", &[("token", "wrong"), ("next", "/")]).send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::FORBIDDEN);
    let right = nobody.post("/sign-in", &[("token", &token), ("next", "//evil.example")]).send().await.unwrap();
    assert_eq!((right.status(), &right.headers()[header::LOCATION]), (StatusCode::SEE_OTHER, &"/".parse().unwrap()));

    // A command asks for a code with its token, and the browser uses it once.
    let url = format!("{}/api/sign-in-codes", nobody.base);
    let answer: Value = nobody.http.post(url).bearer_auth(&token).send().await.unwrap().json().await.unwrap();
    let path = answer["path"].as_str().unwrap();
    let first = nobody.get(path).send().await.unwrap();
    assert_eq!(first.status(), StatusCode::SEE_OTHER);
    let cookie = first.headers()[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && !cookie.contains(&token), "{cookie}");
    let second = nobody.get(path).send().await.unwrap();
    assert_eq!(second.status(), StatusCode::FORBIDDEN);
    assert!(second.headers().get(header::SET_COOKIE).is_none());

    // A user of one namespace is asked for it.
    let viewer = world.signed_in(&token).await;
    let (status, page) = viewer.read("/").await;
    assert!(status == StatusCode::OK && page.contains("Choose a namespace"), "{page}");
    let (status, page) = viewer.read("/runs?namespace=default").await;
    assert!(status == StatusCode::OK && page.contains("/runs/default/r"), "{page}");
    assert_eq!(viewer.read("/runs/kube-system/r").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_hosts_and_headers_lead_nowhere() {
    let world = World::start().await;
    let viewer = world.signed_in(&world.token("viewer", &["knoll-viewer"]).await).await;
    for path in
        ["/runs/default/..%2f..%2fsecrets", "/runs/default/a%0d%0ab", "/runs/..%2fx/y", "/nothing", "/assets/x/../../y"]
    {
        let answer = viewer.get(path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
    let rebound = viewer.get("/").header(header::HOST, "evil.example").send().await.unwrap();
    assert_eq!(rebound.status(), StatusCode::FORBIDDEN);
    let large = viewer.post("/sign-in", &[("token", &"x".repeat(100_000))]).send().await.unwrap();
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let (status, document) = viewer.read("/api/openapi.json").await;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert!(status == StatusCode::OK && document["paths"]["/api/runs/{namespace}/{name}/decision"]["post"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_escaped_and_arrives_live() {
    let world = World::start().await;
    let run = world.run("r").await;
    let run = world.set_status(&run.metadata.name.unwrap(), &running()).await;
    let log = world.log(&run);
    let first = b"\x1b[32mgreen\x1b[0m <script>alert(1)</script>\x1b[2J\n";
    log.append(0, first).await.unwrap();
    let viewer = world.signed_in(&world.token("viewer", &["knoll-viewer"]).await).await;
    let (_, page) = viewer.read("/runs/default/r").await;
    assert!(page.contains("<span class=\"a-green\">green</span> &lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
    let from = format!("/runs/default/r/events?from={}:1", first.len());
    assert!(page.contains(&format!("data-events=\"{from}\"")), "{page}");

    let mut events = viewer.get(&from).send().await.unwrap().bytes_stream();
    let mut seen = String::new();
    let mut until = async |words: &str| {
        let wait = async {
            while !seen.contains(words) {
                seen.push_str(&String::from_utf8_lossy(&events.next().await.unwrap().unwrap()));
            }
        };
        tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("no {words} in {seen}"));
    };
    until("event: run").await;
    log.append(first.len() as u64, b"second <b>\nhalf").await.unwrap();
    until("L2").await;
    until("second &lt;b&gt;").await;
    let status = RunStatus { phase: RunPhase::Succeeded, exit_code: Some(0), ..running() };
    world.set_status("r", &status).await;
    until("Succeeded").await;
    until("half").await;
    until("event: end").await;

    let json = viewer.read("/api/runs/default/r/log").await.1;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sections"][0]["step"], "plan");
    assert_eq!(json["sections"][0]["lines"][0]["spans"][0], json!({"class": "a-green", "text": "green"}));
    let (_, text) = viewer.read("/runs/default/r/log").await;
    assert!(text.starts_with('\u{1b}'), "the download is as it was printed");
}

/// What each role reaches through the API of the page is what its own requests reach (docs/roles.md).
#[tokio::test(flavor = "multi_thread")]
async fn each_role_reaches_through_the_page_what_it_reaches_without_it() {
    let world = World::start().await;
    let run = world.run_in_review("r", TEXT).await;
    let digest = run.status.unwrap().review_digest.unwrap();
    let http = world.browser().http;
    let reads =
        ["/api/runs/default/r", "/api/runs/default/r/plan", "/api/runs/default/r/log", "/api/graph?namespace=default"];
    // The roles, and whether they read, cancel and decide.
    for (role, may_read, may_cancel, may_decide) in [
        (None, false, false, false),
        (Some("knoll-approver"), true, false, true),
        (Some("knoll-viewer"), true, false, false),
        (Some("knoll-admin"), true, false, false),
        (Some("knoll-user"), true, true, false),
        (Some("knoll-editor"), true, true, false),
    ] {
        let name = role.unwrap_or("nobody");
        let token = world.token(name, role.as_slice()).await;
        let url = |path: &str| format!("http://{}{path}", world.page.addr);
        for path in reads {
            let code = http.get(url(path)).bearer_auth(&token).send().await.unwrap().status();
            assert_eq!(code == StatusCode::OK, may_read, "{name} {path}: {code}");
            let code = http.get(url(path)).send().await.unwrap().status();
            assert_eq!(code, StatusCode::UNAUTHORIZED, "{path}");
        }
        let decision = json!({"decision": "Approve", "digest": digest});
        let sent = http.post(url("/api/runs/default/r/decision")).bearer_auth(&token).json(&decision).send().await;
        let code = sent.unwrap().status();
        assert_eq!(code.is_success(), may_decide, "{name} decides: {code}");
        let sent = http.post(url("/api/runs/default/r/cancel")).bearer_auth(&token).send().await;
        let code = sent.unwrap().status();
        assert_eq!(code.is_success(), may_cancel, "{name} cancels: {code}");
    }
    assert_eq!(world.api::<Approval>().list(&ListParams::default()).await.unwrap().items.len(), 1);
}
