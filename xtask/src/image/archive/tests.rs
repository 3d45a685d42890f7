#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

use std::collections::BTreeMap;

fn image(source: &Path) -> Image {
    Image {
        name: "knoll/box:1".to_owned(),
        entries: vec![
            Entry::Folder("bin".to_owned(), 0o755),
            Entry::Copy("bin/tool".to_owned(), source.to_owned(), 0o755),
            Entry::Link("bin/sh".to_owned(), "tool".to_owned()),
            Entry::Text("etc/passwd".to_owned(), "root:x:0:0::/:/bin/sh\n".to_owned()),
        ],
        entrypoint: vec!["/bin/tool".to_owned()],
        user: "0:0".to_owned(),
        environment: vec!["PATH=/bin".to_owned()],
        ..Image::default()
    }
}

fn members(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().to_string_lossy().into_owned(), content)
    });
    entries.collect()
}

#[test]
fn the_manifest_names_a_config_and_a_layer_whose_digests_are_true() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("tool");
    fs::write(&source, "binary").unwrap();
    let target = folder.path().join("box.tar");
    image(&source).write(&target).unwrap();

    let members = members(&fs::read(&target).unwrap());
    let manifest: serde_json::Value = serde_json::from_slice(&members["manifest.json"]).unwrap();
    assert_eq!(manifest[0]["RepoTags"], json!(["knoll/box:1"]));
    let config_name = manifest[0]["Config"].as_str().unwrap();
    assert_eq!(config_name, format!("{}.json", digest(&members[config_name])));
    let config: serde_json::Value = serde_json::from_slice(&members[config_name]).unwrap();
    let layer = &members[manifest[0]["Layers"][0].as_str().unwrap()];
    assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", digest(layer))]));
    assert_eq!(config["config"]["Entrypoint"], json!(["/bin/tool"]));

    let mut layer = tar::Archive::new(layer.as_slice());
    let seen: Vec<(String, u32, u64, EntryType)> = layer
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            (path, header.mode().unwrap(), header.mtime().unwrap(), header.entry_type())
        })
        .collect();
    let expected = [
        ("bin/", 0o755, EntryType::Directory),
        ("bin/tool", 0o755, EntryType::Regular),
        ("bin/sh", 0o777, EntryType::Symlink),
        ("etc/passwd", 0o644, EntryType::Regular),
    ];
    assert_eq!(seen, expected.map(|(path, mode, kind)| (path.to_owned(), mode, 0, kind)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("tool");
    fs::write(&source, "binary").unwrap();
    let written = ["a.tar", "b.tar"].map(|name| {
        let target = folder.path().join(name);
        image(&source).write(&target).unwrap();
        fs::read(&target).unwrap()
    });
    assert_eq!(written[0], written[1]);
}

#[test]
fn a_file_that_is_missing_is_named_and_leaves_no_archive() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("box.tar");
    let error = format!("{:#}", image(&folder.path().join("absent")).write(&target).unwrap_err());
    assert!(error.contains("absent") && error.contains("knoll/box:1"), "{error}");
    assert!(!target.exists());
}
