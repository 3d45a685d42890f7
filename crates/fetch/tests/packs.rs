//! Packs of rules from real servers on loopback: git with a password, and an OCI registry with tokens.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use knoll_api::policy::{GitPack, OciPack};
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use knoll_e2e::registry::Registry;
use knoll_fetch::{Addresses, Credentials, Error, Settings, Texts, git_pack, oci_pack};

const RULES: &str = "application/vnd.cncf.openpolicyagent.policy.layer.v1+rego";
const TAR: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn setup() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn with_password() -> Credentials {
    Credentials { username: Some(USER.to_owned()), password: Some(PASSWORD.to_owned()), ..Credentials::default() }
}

fn opened() -> Settings {
    let loopback = ["127.0.0.1", "::1"].map(|address| knoll_fetch::parse_range(address).unwrap());
    Settings { addresses: Addresses::new(&loopback), ..Settings::default() }
}

fn names(texts: &Texts) -> Vec<&str> {
    texts.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_pack_of_a_repository_is_that_of_its_commit_for_ever() {
    setup();
    let repositories = Repositories::new();
    repositories.create("rules.git");
    let files = [("aws/tags.rego", "package aws"), ("aws/tags_test.rego", "package aws"), ("top.rego", "package top")];
    let commit = repositories.commit("rules.git", &files);
    repositories.commit("rules.git", &[("aws/tags.rego", "package changed"), ("aws/more.rego", "package more")]);
    let server = HttpServer::start(&repositories).await;
    let pack = |path: &str, commit: &str| GitPack {
        url: server.url("rules.git"),
        commit: commit.to_owned(),
        path: (!path.is_empty()).then(|| path.to_owned()),
        ..GitPack::default()
    };
    let found = git_pack(&pack("aws", &commit), &with_password(), &opened()).await.unwrap();
    assert_eq!(names(&found), ["aws/tags.rego"]);
    assert_eq!(found["aws/tags.rego"], "package aws");
    let found = git_pack(&pack("", &commit), &with_password(), &opened()).await.unwrap();
    assert_eq!(names(&found), ["aws/tags.rego", "top.rego"]);

    let missing = git_pack(&pack("gcp", &commit), &with_password(), &opened()).await.unwrap_err();
    assert!(missing.to_string().contains("`*.rego`"), "{missing}");
    let unknown = git_pack(&pack("", &"0".repeat(40)), &with_password(), &opened()).await;
    assert!(unknown.is_err());
    let anybody = git_pack(&pack("", &commit), &Credentials::default(), &opened()).await.unwrap_err();
    assert!(anybody.to_string().contains("requires credentials"), "{anybody}");
    let closed = git_pack(&pack("", &commit), &with_password(), &Settings::default()).await.unwrap_err();
    assert!(closed.to_string().contains("is a loopback address"), "{closed}");
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(&builder.into_inner().unwrap()).unwrap();
    writer.finish().unwrap()
}

#[tokio::test]
async fn a_pack_of_a_registry_is_what_its_digest_names() {
    setup();
    let registry = Registry::start().await;
    let pack = |digest: &str| OciPack {
        repository: format!("127.0.0.1:{}/team/policies", registry.port),
        digest: digest.to_owned(),
        ..OciPack::default()
    };
    let fetch = async |digest: &str| oci_pack(&pack(digest), &with_password(), &opened()).await;
    let push = |files: &[(&str, &str, &[u8])]| registry.push("team/policies", files);

    let digest = push(&[(RULES, "tags.rego", b"package main"), (RULES, "tags_test.rego", b"package main")]);
    let found = fetch(&digest).await.unwrap();
    assert_eq!(names(&found), ["0/tags.rego"]);
    assert_eq!(found["0/tags.rego"], "package main");

    let bundle = tar(&[("data.json", "{}"), ("policy/a.rego", "package a"), (".manifest", "{}")]);
    let found = fetch(&push(&[(TAR, "bundle.tar.gz", &bundle)])).await.unwrap();
    assert_eq!(found["0/policy/a.rego"], "package a");

    let with_data = tar(&[("data.json", "{\"allowed\": []}"), ("a.rego", "package a")]);
    let outside = tar(&[("a.rego", "package a")]);
    let large = tar(&[("a.rego", &"#".repeat(2 << 20))]);
    let refused: [(&[(&str, &str, &[u8])], &str); 5] = [
        (&[(TAR, "b", &with_data)], "it has data in `data.json`"),
        (&[("application/vnd.cncf.openpolicyagent.data.layer.v1+json", "data.json", b"{}")], "has the type"),
        (&[], "none of its layers has rules"),
        (&[(TAR, "b", &large)], "more than 1024 KiB"),
        (&[(TAR, "b", &outside[..20])], "cannot be used"),
    ];
    for (files, expect) in refused {
        let error = fetch(&push(files)).await.unwrap_err();
        assert!(error.to_string().contains(expect), "{expect}: {error}");
    }

    // What the registry has changed under a digest is not taken.
    let digest = push(&[(RULES, "deny.rego", b"package deny")]);
    registry.replace("team/policies", "blobs", &String::from(knoll_api::Digest::of("package deny")), b"package allow");
    assert!(matches!(fetch(&digest).await, Err(Error::ContentDigest { .. })));
    registry.replace("team/policies", "manifests", &digest, b"{\"layers\": []}");
    assert!(matches!(fetch(&digest).await, Err(Error::ContentDigest { .. })));

    let digest = push(&[(RULES, "a.rego", b"package a")]);
    let anybody = oci_pack(&pack(&digest), &Credentials::default(), &opened()).await.unwrap_err();
    assert!(anybody.to_string().contains("requires credentials"), "{anybody}");
    let closed = oci_pack(&pack(&digest), &with_password(), &Settings::default()).await.unwrap_err();
    assert!(matches!(closed, Error::Forbidden { .. }), "{closed}");
    assert!(fetch(&format!("sha256:{}", "0".repeat(64))).await.is_err());
}
