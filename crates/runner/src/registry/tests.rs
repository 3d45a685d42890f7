#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn fragment(from: &str, text: &str) -> CliFragment {
    CliFragment { from: from.to_owned(), text: text.to_owned(), sensitive: false }
}

fn configured(registry: &JobRegistry, image: Option<&Path>, folder: &Path) -> BTreeMap<OsString, OsString> {
    let files = RegistryFiles::below(folder);
    files.write(registry).unwrap();
    let mut env = BTreeMap::from([("GIT_CONFIG_COUNT".into(), "1".into())]);
    files.configure(registry, image, &mut env).unwrap();
    env
}

#[test]
fn of_blocks_that_several_have_the_first_counts() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image.tfrc");
    std::fs::write(&image, "disable_checkpoint = true\ncredentials \"a.example.com\" {\n  token = \"image\"\n}\n")
        .unwrap();
    let mirror = |url: &str| format!("provider_installation {{\n  network_mirror {{\n    url = \"{url}\"\n  }}\n}}\n");
    let first = format!("{}credentials \"a.example.com\" {{\n  token = \"one\"\n}}\n", mirror("https://one/"));
    let second = format!("{}credentials \"b.example.com\" {{\n  token = \"two\"\n}}\n", mirror("https://two/"));
    let registry =
        JobRegistry { terraformrc: vec![fragment("a", &first), fragment("b", &second)], ..JobRegistry::default() };
    let env = configured(&registry, Some(&image), folder.path());
    let text = std::fs::read_to_string(env.get(OsStr::new(CLI_CONFIG)).unwrap()).unwrap();
    for (part, is_there) in [
        ("disable_checkpoint = true", true),
        ("https://one/", true),
        ("https://two/", false),
        ("\"image\"", true),
        ("\"one\"", false),
        ("\"two\"", true),
    ] {
        assert_eq!(text.contains(part), is_there, "{part} in:\n{text}");
    }
    assert!(Body::from_str(&text).is_ok(), "{text}");
}

#[test]
fn a_fragment_that_cannot_be_read_is_named_and_not_shown() {
    let bad = [fragment("mirror", "credentials \"a\" { token = \"s3cret")];
    let message = joined(None, &bad).unwrap_err().to_string();
    assert!(message.contains("Policy `mirror`") && !message.contains("s3cret"), "{message}");
}

#[test]
fn passwords_of_a_netrc_are_for_git_and_for_terraform() {
    let folder = tempfile::tempdir().unwrap();
    let netrc = "# ours\nmachine git.example.com\n  login ci@x password p/w:1\nmachine b.example.com login u\ndefault login d password e\n";
    let registry = JobRegistry { netrc: Some(netrc.to_owned()), ..JobRegistry::default() };
    let env = configured(&registry, None, folder.path());
    let stored = std::fs::read_to_string(folder.path().join("git-credentials")).unwrap();
    assert_eq!(stored, "https://ci%40x:p%2Fw%3A1@git.example.com\n");
    let text = |name: &str| env.get(OsStr::new(name)).and_then(|value| value.to_str()).unwrap_or_default();
    assert_eq!(text("GIT_CONFIG_COUNT"), "2");
    assert_eq!(text("GIT_CONFIG_KEY_1"), "credential.helper");
    assert!(text("GIT_CONFIG_VALUE_1").starts_with("store --file='"), "{env:?}");
    assert_eq!(std::fs::read_to_string(text("NETRC")).unwrap(), netrc);
    assert_eq!(secrets(&registry), ["p/w:1", "e"]);
    assert!(!env.contains_key(OsStr::new(CLI_CONFIG)), "{env:?}");
}

#[test]
fn ssh_trusts_the_hosts_of_its_secret_only() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = JobSsh { identity: "KEY".to_owned(), known_hosts: "git.example.com ssh-ed25519 AAAA\n".to_owned() };
    let registry = JobRegistry { ssh: Some(ssh), ..JobRegistry::default() };
    let env = configured(&registry, None, folder.path());
    let command = env.get(OsStr::new("GIT_SSH_COMMAND")).unwrap().to_str().unwrap();
    assert!(command.contains("StrictHostKeyChecking=yes") && command.contains("ssh-known-hosts"), "{command}");
    assert_eq!(std::fs::read_to_string(folder.path().join("ssh-identity")).unwrap(), "KEY\n");
}
