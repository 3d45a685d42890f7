//! Archives in every format, from a server with a password and from a file.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::path::Path;

use knoll_api::source::ArchiveSource;
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use knoll_fetch::{Addresses, Credentials, Settings, archive, parse_range};
use sha2::{Digest, Sha256};

const FILES: [(&str, &str); 3] = [("net/main.tf", "locals {}\n"), ("net/run.sh", "#!/bin/sh\n"), ("other/main.tf", "")];

fn tar() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in FILES {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o644 });
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn zip(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in files {
        let mode = if name.ends_with(".sh") { 0o755 } else { 0o644 };
        writer.start_file(*name, zip::write::SimpleFileOptions::default().unix_permissions(mode)).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(name), bytes).unwrap();
    sha256(bytes)
}

fn source(url: String, sha256: &str, path: &str) -> ArchiveSource {
    let path = (!path.is_empty()).then(|| path.to_owned());
    ArchiveSource { url, sha256: sha256.to_owned(), path, ..ArchiveSource::default() }
}

#[tokio::test]
async fn every_kind_of_archive_is_the_same_bundle_when_its_bytes_are_as_promised() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let files = Repositories::new();
    let server = HttpServer::start(&files).await;
    let who = Credentials { username: Some(USER.into()), password: Some(PASSWORD.into()), ..Credentials::default() };
    let settings = Settings { addresses: Addresses::new(&[parse_range("127.0.0.1").unwrap()]), ..Settings::default() };
    let kinds: [(&str, Vec<u8>); 4] = [
        ("a.tar", tar()),
        ("a.tar.gz", gzip(&tar())),
        ("a.tar.zst", zstd::encode_all(&tar()[..], 1).unwrap()),
        ("a.zip", zip(&FILES)),
    ];
    let mut digests = Vec::new();
    for (name, bytes) in &kinds {
        let sum = write(&files.root(), name, bytes);
        let bundle = archive(&source(server.url(name), &sum, "net"), &who, &settings).await;
        digests.push(bundle.unwrap_or_else(|error| panic!("{name}: {error}")).digest);
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");

    let sum = sha256(&kinds[0].1);
    let refused = |source: ArchiveSource, who: Credentials| {
        let settings = settings.clone();
        async move { archive(&source, &who, &settings).await.unwrap_err().to_string() }
    };
    let said = refused(source(server.url("a.tar"), &"0".repeat(64), ""), who.clone()).await;
    assert!(said.contains("does not have the sha256 0000") && !said.contains(&sum), "{said}");
    let said = refused(source(server.url("a.tar"), &sum, "nowhere"), who.clone()).await;
    assert!(said.contains("file found in `nowhere` of the archive"), "{said}");
    let said = refused(source(server.url("a.tar"), &sum, "net"), Credentials::default()).await;
    assert!(said.contains("it requires credentials"), "{said}");
    let said = refused(source(server.url("gone.tar"), &sum, ""), who.clone()).await;
    assert!(said.contains("404"), "{said}");
    let text = write(&files.root(), "text", b"this is no archive at all");
    let said = refused(source(server.url("text"), &text, ""), who.clone()).await;
    assert!(said.contains("cannot unpack"), "{said}");
    let evil = write(&files.root(), "evil.zip", &zip(&[("../evil.tf", "x")]));
    let said = refused(source(server.url("evil.zip"), &evil, ""), who.clone()).await;
    assert!(said.contains("`../evil.tf` lies outside"), "{said}");
    let mut twice = zip(&[("main.tf", "# one"), ("main.tX", "# two")]);
    while let Some(at) = twice.windows(7).position(|name| name == b"main.tX") {
        twice[at..at + 7].copy_from_slice(b"main.tf");
    }
    let twice = write(&files.root(), "twice.zip", &twice);
    let said = refused(source(server.url("twice.zip"), &twice, ""), who.clone()).await;
    assert!(said.contains("two entries of the same name"), "{said}");

    let file = format!("file://{}/a.tar.gz", files.root().display());
    let sum = sha256(&kinds[1].1);
    let said = refused(source(file.clone(), &sum, "net"), Credentials::default()).await;
    assert!(said.contains("--local-sources"), "{said}");
    let local = Settings { local: true, ..Settings::default() };
    let bundle = archive(&source(file, &sum, "net"), &Credentials::default(), &local).await.unwrap();
    assert_eq!(bundle.digest, digests[0]);
}
