//! Git with real servers on loopback: `http-backend` with a password, with and without TLS, and sshd.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use knoll_api::source::{GitRef, GitSource};
use knoll_bundle::{Bundle, unpack};
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, Sshd, USER};
use knoll_fetch::{Addresses, Credentials, Error, Settings};

const MAIN: &str = "module \"shared\" { source = \"../shared\" }\n";

fn setup() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn with_password() -> Credentials {
    Credentials { username: Some(USER.to_owned()), password: Some(PASSWORD.to_owned()), ..Credentials::default() }
}

fn source(url: String, reference: Option<GitRef>, path: &str) -> GitSource {
    let path = (!path.is_empty()).then(|| path.to_owned());
    GitSource { url, reference, path, ..GitSource::default() }
}

fn branch(name: &str) -> Option<GitRef> {
    Some(GitRef { branch: Some(name.to_owned()), ..GitRef::default() })
}

/// Settings that open the addresses of the test servers.
fn opened() -> Settings {
    let loopback = ["127.0.0.1", "::1"].map(|address| knoll_fetch::parse_range(address).unwrap());
    Settings { addresses: Addresses::new(&loopback), ..Settings::default() }
}

async fn fetch(source: &GitSource, credentials: &Credentials) -> Result<(String, Bundle), Error> {
    fetch_with(source, credentials, &opened()).await
}

async fn fetch_with(
    source: &GitSource,
    credentials: &Credentials,
    settings: &Settings,
) -> Result<(String, Bundle), Error> {
    let commit = knoll_fetch::newest(source, credentials, settings).await?;
    Ok((commit.hash.clone(), knoll_fetch::git(source, &commit, credentials, settings).await?))
}

/// The files of a bundle by path.
fn files(bundle: &Bundle) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    unpack(&bundle.bytes, folder.path(), |_| true).unwrap();
    let mut found = BTreeMap::new();
    let mut open = vec![folder.path().to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder.path()).unwrap().display().to_string();
                found.insert(name, std::fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    found
}

fn names(bundle: &Bundle) -> Vec<String> {
    files(bundle).into_keys().collect()
}

/// A repository with a module, a local module beside it, and unrelated files.
fn repository() -> (Repositories, [String; 2]) {
    let repositories = Repositories::new();
    repositories.create("infra.git");
    let first = repositories.commit(
        "infra.git",
        &[("net/main.tf", MAIN), ("shared/main.tf", ""), ("elsewhere/main.tf", ""), ("README.md", "hello")],
    );
    repositories.in_work("infra.git", &["tag", "--annotate", "v1", "--message", "the first"]);
    repositories.in_work("infra.git", &["tag", "light"]);
    repositories.in_work("infra.git", &["push", "--quiet", "--tags"]);
    let second = repositories.commit("infra.git", &[("net/more.tf", "# more\n")]);
    (repositories, [first, second])
}

#[tokio::test]
async fn branches_tags_and_commits_over_http_with_a_password() {
    setup();
    let (repositories, [first, second]) = repository();
    let server = HttpServer::start(&repositories).await;
    let url = server.url("infra.git");
    let tag = |name: &str| Some(GitRef { tag: Some(name.to_owned()), ..GitRef::default() });
    let at = |hash: &str| Some(GitRef { commit: Some(hash.to_owned()), ..GitRef::default() });
    let with_more = [".knoll-module", "net/main.tf", "net/more.tf", "shared/main.tf"];
    let without = [".knoll-module", "net/main.tf", "shared/main.tf"];
    let rows: [(_, &String, &[&str]); 6] = [
        (None, &second, &with_more),
        (branch("main"), &second, &with_more),
        (tag("v1"), &first, &without),
        (tag("light"), &first, &without),
        // A commit that is not the tip of a branch.
        (at(&first), &first, &without),
        (at(&second), &second, &with_more),
    ];
    let mut digests = Vec::new();
    for (reference, expect, expected) in rows {
        let (commit, bundle) = fetch(&source(url.clone(), reference.clone(), "net"), &with_password()).await.unwrap();
        assert_eq!(
            (&commit, names(&bundle)),
            (expect, expected.iter().map(|n| (*n).to_owned()).collect()),
            "{reference:?}"
        );
        digests.push(bundle.digest);
    }
    assert_eq!(digests[2], digests[4], "the same files are the same bundle");

    // A commit that does not touch the module gives the same bundle.
    repositories.commit("infra.git", &[("elsewhere/main.tf", "# changed")]);
    let (commit, bundle) = fetch(&source(url.clone(), None, "net"), &with_password()).await.unwrap();
    assert_ne!(commit, second);
    assert_eq!(bundle.digest, digests[0]);

    let refused = |source: GitSource, credentials: Credentials| async move {
        fetch(&source, &credentials).await.unwrap_err().to_string()
    };
    let said = refused(source(url.clone(), branch("gone"), "net"), with_password()).await;
    assert_eq!(said, format!("`{url}` has no branch `gone`; correct the source's `ref`"));
    let said = refused(source(url.clone(), at(&"0".repeat(40)), "net"), with_password()).await;
    assert!(said.contains("has no commit `0000"), "{said}");
    let said = refused(source(url.clone(), None, "nowhere"), with_password()).await;
    assert!(said.contains("file found in `nowhere` of commit ") && said.contains("`path`"), "{said}");
    let said = refused(source(server.url("other.git"), None, ""), with_password()).await;
    assert!(said.contains("other.git` refused the request: nothing found at this URL (404"), "{said}");
    let said = refused(source(url.clone(), None, ""), Credentials::default()).await;
    assert!(said.contains("it requires credentials (401") && said.contains("secretRef"), "{said}");
    let wrong = Credentials { password: Some("guess".to_owned()), ..with_password() };
    let said = refused(source(url, None, ""), wrong).await;
    assert!(said.contains("rejected the credentials") && !said.contains("guess"), "{said}");
    let port = server.port;
    drop(server);
    let said = refused(source(format!("http://127.0.0.1:{port}/infra.git"), None, ""), with_password()).await;
    assert!(said.contains("cannot reach"), "{said}");
}

#[tokio::test]
async fn https_believes_the_authority_of_the_secret_and_no_other() {
    setup();
    let (repositories, [_, second]) = repository();
    let server = HttpServer::start_tls(&repositories).await;
    let of = source(server.url("infra.git"), None, "net");
    let known = Credentials { ca: server.ca.clone(), ..with_password() };
    assert_eq!(fetch(&of, &known).await.unwrap().0, second);
    let said = fetch(&of, &with_password()).await.unwrap_err().to_string();
    assert!(said.contains("cannot reach") && said.contains("certificate"), "{said}");
    let broken = Credentials {
        ca: Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_owned()),
        ..with_password()
    };
    let said = fetch(&of, &broken).await.unwrap_err().to_string();
    assert!(said.contains("ca.crt"), "{said}");
}

#[tokio::test]
async fn ssh_with_a_key_and_known_hosts() {
    setup();
    let (repositories, [first, second]) = repository();
    // The newer protocol, and the older one for servers that do not pass `GIT_PROTOCOL` on.
    for newer in [true, false] {
        let sshd = Sshd::start(newer);
        let url = sshd.url(&repositories.root(), "infra.git");
        let with = |identity: &str, host: &str| Credentials {
            identity: Some(sshd.file(identity)),
            known_hosts: Some(sshd.known_hosts(host)),
            ..Credentials::default()
        };
        let of = source(url.clone(), branch("main"), "net");
        for identity in ["identity", "rsa"] {
            let (commit, bundle) = fetch(&of, &with(identity, "host")).await.unwrap();
            assert_eq!((commit.as_str(), names(&bundle).len()), (second.as_str(), 4), "{newer} {identity}");
        }
        // A commit that is not the tip of a branch, which an older server sends only with all refs.
        let older = source(url.clone(), Some(GitRef { commit: Some(first.clone()), ..GitRef::default() }), "net");
        assert_eq!(names(&fetch(&older, &with("identity", "host")).await.unwrap().1).len(), 3, "{newer}");
        let tagged = source(url.clone(), Some(GitRef { tag: Some("v1".to_owned()), ..GitRef::default() }), "net");
        assert_eq!(fetch(&tagged, &with("identity", "host")).await.unwrap().0, first, "{newer}");

        let said = fetch(&of, &with("identity", "other")).await.unwrap_err().to_string();
        assert!(said.contains("host key does not match `known_hosts`"), "{said}");
        let said = fetch(&of, &with("stranger", "host")).await.unwrap_err().to_string();
        assert!(said.contains("rejected the key") && said.contains("`identity`"), "{said}");
        let nobody =
            Credentials { known_hosts: Some("example.com ssh-ed25519 AAAA".to_owned()), ..with("identity", "host") };
        let said = fetch(&of, &nobody).await.unwrap_err().to_string();
        assert!(said.contains(&format!("ssh-keyscan -p {} 127.0.0.1", sshd.port)), "{said}");
        let gone = source(sshd.url(&repositories.root(), "gone.git"), None, "");
        let said = fetch(&gone, &with("identity", "host")).await.unwrap_err().to_string();
        assert!(said.contains("refused the request") && said.contains("gone.git"), "{said}");
        let said = fetch(&of, &Credentials::default()).await.unwrap_err().to_string();
        assert!(said.contains("no private key given"), "{said}");
    }
}

#[tokio::test]
async fn a_token_is_sent_as_a_git_server_takes_it() {
    setup();
    let (repositories, [_, second]) = repository();
    let server = HttpServer::start(&repositories).await;
    let token =
        Credentials { username: Some(USER.to_owned()), token: Some(PASSWORD.to_owned()), ..Credentials::default() };
    let of = source(server.url("infra.git"), None, "net");
    assert_eq!(fetch(&of, &token).await.unwrap().0, second);
}

#[tokio::test]
async fn a_link_to_a_file_of_the_machine_is_not_read() {
    setup();
    let (repositories, _) = repository();
    let work = repositories.work("infra.git");
    // It has no size, and gigabytes of content.
    for name in ["net/x.tf", "net/.terraformignore", "only/x.tf"] {
        std::fs::create_dir_all(work.join(name).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/proc/self/pagemap", work.join(name)).unwrap();
    }
    repositories.commit_all("infra.git");
    let server = HttpServer::start(&repositories).await;
    let (_, bundle) = fetch(&source(server.url("infra.git"), None, "net"), &with_password()).await.unwrap();
    assert_eq!(names(&bundle), [".knoll-module", "net/main.tf", "net/more.tf", "shared/main.tf"]);
    let said = fetch(&source(server.url("infra.git"), None, "only"), &with_password()).await.unwrap_err().to_string();
    assert!(said.contains("file found in `only`"), "{said}");
}

#[tokio::test]
async fn a_small_repository_that_unpacks_to_much_is_refused() {
    setup();
    let (repositories, _) = repository();
    let work = repositories.work("infra.git");
    let server = HttpServer::start(&repositories).await;
    // Ten trees of ten trees, seven deep: a few kilobytes that stand for ten million files.
    let script = r#"
        set -e
        blob=$(printf '' | git hash-object -w --stdin)
        tree=$(printf '100644 blob %s\tmain.tf\n' "$blob" | git mktree)
        for level in 1 2 3 4 5 6 7; do
            tree=$(for name in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\td%s\n' "$tree" "$name"; done | git mktree)
        done
        commit=$(git -c user.name=a -c user.email=a@example.com commit-tree "$tree" -m many)
        git push --quiet origin "$commit:refs/heads/many"
        head -c 70000000 /dev/zero > large.tf
        git checkout --quiet -b large
        git add large.tf
        git -c user.name=a -c user.email=a@example.com commit --quiet -m large
        git push --quiet origin large
    "#;
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(&work).status().unwrap();
    assert!(made.success());
    let said = fetch(&source(server.url("infra.git"), branch("many"), ""), &with_password()).await;
    assert!(matches!(said, Err(Error::TooMany(_))), "{said:?}");
    let said = fetch(&source(server.url("infra.git"), branch("large"), ""), &with_password()).await;
    assert!(matches!(said, Err(Error::Refused { .. })), "{said:?}");
}

#[tokio::test]
async fn submodules_come_along_when_they_are_asked_for() {
    setup();
    let (repositories, _) = repository();
    repositories.create("parts.git");
    repositories.commit("parts.git", &[("vpc/main.tf", "# vpc\n")]);
    repositories.create("live.git");
    repositories.commit("live.git", &[("main.tf", "module \"vpc\" { source = \"./parts/vpc\" }\n")]);
    let parts = repositories.root().join("parts.git");
    repositories.in_work("live.git", &["submodule", "--quiet", "add", &parts.to_string_lossy(), "parts"]);
    repositories.in_work("live.git", &["config", "--file", ".gitmodules", "submodule.parts.url", "../parts.git"]);
    repositories.commit_all("live.git");
    let server = HttpServer::start(&repositories).await;
    let mut of = source(server.url("live.git"), None, "");
    assert_eq!(names(&fetch(&of, &with_password()).await.unwrap().1), [".gitmodules", "main.tf"]);
    of.submodules = true;
    let bundle = fetch(&of, &with_password()).await.unwrap().1;
    assert_eq!(names(&bundle), [".gitmodules", "main.tf", "parts/vpc/main.tf"]);
}

#[tokio::test]
async fn links_that_lead_out_and_local_repositories_stay_where_they_are() {
    setup();
    let (repositories, _) = repository();
    std::os::unix::fs::symlink("/etc", repositories.work("infra.git").join("net/away")).unwrap();
    std::os::unix::fs::symlink("/etc", repositories.work("infra.git").join("etc")).unwrap();
    let newest = repositories.commit_all("infra.git");
    let server = HttpServer::start(&repositories).await;
    let (_, bundle) = fetch(&source(server.url("infra.git"), None, "net"), &with_password()).await.unwrap();
    assert!(names(&bundle).iter().all(|name| !name.contains("away")), "{:?}", names(&bundle));
    let said = fetch(&source(server.url("infra.git"), None, "etc"), &with_password()).await.unwrap_err().to_string();
    assert!(said.contains("file found in `etc`"), "{said}");

    let local = source(format!("file://{}", repositories.root().join("infra.git").display()), branch("main"), "net");
    let said = fetch(&local, &Credentials::default()).await.unwrap_err().to_string();
    assert!(said.contains("--local-sources"), "{said}");
    let settings = Settings { local: true, ..Settings::default() };
    let commit = knoll_fetch::newest(&local, &Credentials::default(), &settings).await.unwrap();
    assert_eq!(commit.hash, newest);
    let again = knoll_fetch::git(&local, &commit, &Credentials::default(), &settings).await.unwrap();
    assert_eq!(again.digest, bundle.digest);
}
