//! Stacks with a git repository or an archive as their source, behind a password.
#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::Stack;
use knoll_api::stack::{StackPhase, StackStatus};
use knoll_e2e::World;
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use serde_json::json;
use sha2::{Digest, Sha256};

fn of(stack: &Stack) -> StackStatus {
    stack.status.clone().unwrap_or_default()
}

fn word(word: &str) -> String {
    format!(
        "resource \"terraform_data\" \"a\" {{ input = \"{word}\" }}\noutput \"word\" {{ value = terraform_data.a.output }}\n"
    )
}

#[tokio::test]
async fn a_stack_follows_a_branch_and_outlives_its_server() {
    let world = World::get();
    let namespace = world.namespace().await;
    let repositories = Repositories::new();
    repositories.create("infra.git");
    repositories.commit("infra.git", &[("net/main.tf", &word("first"))]);
    let archive = repositories.root().join("net.tar.gz");
    repositories.in_work("infra.git", &["archive", "--format=tar.gz", "--output", &archive.to_string_lossy(), "HEAD"]);
    let sum: String =
        Sha256::digest(std::fs::read(&archive).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let server = HttpServer::start(&repositories).await;
    let host = if world.is_real() {
        let path = "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
        world.kubectl(&["get", "nodes", "-o", path]).ok()
    } else {
        "127.0.0.1".to_owned()
    };
    let url = |name: &str| format!("http://{host}:{}/{name}", server.port);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git"}, "stringData": {"username": USER, "password": PASSWORD}});
    let git = json!({"url": url("infra.git"), "ref": {"branch": "main"}, "path": "net", "interval": "10s", "secretRef": {"name": "git"}});
    let packed = json!({"url": url("net.tar.gz"), "sha256": sum, "path": "net", "secretRef": {"name": "git"}});
    for object in [
        secret,
        json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "followed"}, "spec": {"source": {"git": git}}}),
        json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "packed"}, "spec": {"source": {"archive": packed}}}),
    ] {
        let _ = namespace.kubectl_with(&object.to_string(), &["apply", "-f", "-"]).ok();
    }
    let has = |expect: &str| {
        let expect = json!({"word": expect});
        move |stack: &Stack| of(stack).phase == StackPhase::Ready && json!(of(stack).outputs) == expect
    };
    let (followed, packed) = tokio::join!(
        namespace.until::<Stack>("followed", "was applied from git", has("first")),
        namespace.until::<Stack>("packed", "was applied from an archive", has("first")),
    );
    assert_eq!(of(&followed).bundle, of(&packed).bundle, "the same files are the same bundle");
    repositories.commit("infra.git", &[("net/main.tf", &word("second"))]);
    namespace.until::<Stack>("followed", "followed its branch", has("second")).await;

    drop(server);
    let _ = namespace.kubectl(&["delete", "secret", "git"]).ok();
    let _ = namespace.kubectl(&["delete", "stack", "followed", "packed", "--timeout=120s"]).ok();
}
