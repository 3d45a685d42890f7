//! Stacks with a git repository or an archive as their source, behind a password.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::Ipv4Addr;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use knoll_api::Stack;
use knoll_api::stack::{StackPhase, StackStatus};
use knoll_e2e::World;
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

fn of(stack: &Stack) -> StackStatus {
    stack.status.clone().unwrap_or_default()
}

fn word(word: &str) -> String {
    format!(
        "resource \"terraform_data\" \"a\" {{ input = \"{word}\" }}\noutput \"word\" {{ value = terraform_data.a.output }}\n"
    )
}

fn messages(stack: &Stack) -> String {
    of(stack).conditions.iter().map(|condition| format!("{}\n", condition.message)).collect()
}

const METADATA: &str = "http://169.254.169.254/latest";

/// A server that leads from each of these paths, and from what is below, to an address. Returns its port.
async fn redirects(to: &[(&str, String)]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = to.iter().fold(Router::new(), |app, (path, to)| {
        let lead = || {
            let to = to.clone();
            get(move || std::future::ready(Redirect::temporary(&to)))
        };
        app.route(&format!("/{path}"), lead()).route(&format!("/{path}/{{*rest}}"), lead())
    });
    // It ends with the test.
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

/// Once, the operator fetched it for every user, and the condition had the sha256 of what it found.
#[tokio::test]
async fn an_address_inside_of_the_network_is_not_fetched_and_no_hash_is_told() {
    let world = World::get();
    let namespace = world.namespace().await;
    let repositories = Repositories::new();
    repositories.create("infra.git");
    repositories.commit("infra.git", &[("main.tf", "")]);
    let content = b"a secret of another tenant";
    std::fs::write(repositories.root().join("secret"), content).unwrap();
    let found: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    let server = HttpServer::start(&repositories).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git"}, "stringData": {"username": USER, "password": PASSWORD}});
    let _ = namespace.kubectl_with(&secret.to_string(), &["apply", "-f", "-"]).ok();
    let at = |host: &str, path: &str| format!("http://{host}:{}/{path}", server.port);
    let archive =
        |url: String| json!({"archive": {"url": url, "sha256": "0".repeat(64), "secretRef": {"name": "git"}}});
    let git = |url: String| json!({"git": {"url": url, "secretRef": {"name": "git"}}});
    let elsewhere = redirects(&[("loopback", at("127.0.0.2", "secret")), ("metadata", METADATA.to_owned())]).await;
    let led = |to: &str| format!("http://{}:{elsewhere}/{to}", world.open_address());
    // In a pod, loopback is the operator's own.
    let refused = [
        ("git-loopback", git(at("127.0.0.2", "infra.git")), "`127.0.0.2` is a loopback address"),
        ("archive-loopback", archive(at("127.0.0.2", "secret")), "`127.0.0.2` is a loopback address"),
        ("archive-other-form", archive(at("0x7f.2", "secret")), "`127.0.0.2` is a loopback address"),
        ("git-metadata", json!({"git": {"url": "http://169.254.169.254/infra.git"}}), "a link-local address"),
        ("archive-metadata", archive(METADATA.to_owned()), "a link-local address"),
        ("git-private", git(at("10.255.255.1", "infra.git")), "`10.255.255.1` is a private address"),
        ("archive-private", archive(at("192.168.0.1", "secret")), "`192.168.0.1` is a private address"),
        ("git-led-to-loopback", git(led("loopback")), "`127.0.0.2` is a loopback address"),
        ("archive-led-to-loopback", archive(led("loopback")), "`127.0.0.2` is a loopback address"),
        ("archive-led-to-metadata", archive(led("metadata")), "a link-local address"),
    ];
    let open = archive(at(&world.open_address(), "secret"));
    let stacks = refused.iter().map(|(name, source, _)| (*name, source)).chain([("archive-changed", &open)]);
    for (name, source) in stacks {
        let stack = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name}, "spec": {"source": source}});
        let _ = namespace.kubectl_with(&stack.to_string(), &["apply", "-f", "-"]).ok();
    }
    for (name, _, expect) in refused {
        let says = |stack: &Stack| messages(stack).contains(expect) && messages(stack).contains("--allow-source-cidr");
        let stack = namespace.until::<Stack>(name, "names the address and the setting", says).await;
        assert!(!messages(&stack).contains(&found), "{}", messages(&stack));
    }
    let says = |stack: &Stack| messages(stack).contains("does not have the sha256 0000");
    let stack = namespace.until::<Stack>("archive-changed", "has another sha256", says).await;
    assert!(!messages(&stack).contains(&found), "{}", messages(&stack));
    let _ = namespace.kubectl(&["delete", "stacks", "--all", "--timeout=120s"]).ok();
}

/// Once, the operator read gigabytes from such a link, and was killed for its memory again and again.
#[tokio::test]
async fn a_link_to_a_file_of_the_operators_machine_is_not_read() {
    let world = World::get();
    let namespace = world.namespace().await;
    let repositories = Repositories::new();
    repositories.create("infra.git");
    repositories.commit("infra.git", &[("net/main.tf", &word("first"))]);
    for link in ["net/x.tf", "net/.terraformignore", "only/x.tf"] {
        let link = repositories.work("infra.git").join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/proc/self/pagemap", link).unwrap();
    }
    repositories.commit_all("infra.git");
    let server = HttpServer::start(&repositories).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git"}, "stringData": {"username": USER, "password": PASSWORD}});
    let _ = namespace.create(&secret.to_string());
    for path in ["only", "net"] {
        let url = format!("http://{}:{}/infra.git", world.open_address(), server.port);
        let source = json!({"git": {"url": url, "path": path, "secretRef": {"name": "git"}}});
        let stack = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": path}, "spec": {"source": source}});
        namespace.create(&stack.to_string());
    }
    let says = |stack: &Stack| messages(stack).contains("file found in `only`");
    namespace.until::<Stack>("only", "said that there is no module", says).await;
    let is_ready = |stack: &Stack| of(stack).phase == StackPhase::Ready;
    let stack = namespace.until::<Stack>("net", "was applied", is_ready).await;
    assert_eq!(json!(of(&stack).outputs), json!({"word": "first"}));
    let _ = namespace.kubectl(&["delete", "stacks", "--all", "--timeout=120s"]).ok();
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
    let host = world.open_address();
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
