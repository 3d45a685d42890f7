//! Keeps runs that share a plugin cache out of each other's way.
//!
//! Terraform does not make the cache safe for several `init` at once: two that download the same provider write the same
//! files. So an `init` that may download holds the cache alone; those that find all they need in it use it together, and
//! those that need no provider do not care.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::console::Console;

/// Holds the cache until it is dropped.
pub struct Guard(#[allow(dead_code, reason = "held, not read")] Option<Flock<File>>);

/// How an `init` uses the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// There are no providers.
    None,
    /// All providers are there already.
    Read,
    /// Something may be downloaded.
    Write,
}

/// Waits until the module's `init` may use the cache.
pub async fn enter(cache: &Path, module: &Path, lock_file: Option<&str>, console: &Console) -> Guard {
    let (kind, arg) = match usage(cache, module, lock_file) {
        Use::None => return Guard(None),
        Use::Read => (FlockArg::LockSharedNonblock, FlockArg::LockShared),
        Use::Write => (FlockArg::LockExclusiveNonblock, FlockArg::LockExclusive),
    };
    let Ok(file) = lock_target(cache) else { return Guard(None) };
    match Flock::lock(file, kind) {
        Ok(lock) => Guard(Some(lock)),
        Err((file, Errno::EWOULDBLOCK)) => {
            console.line("knoll: another run is filling the plugin cache; init waits for it").await;
            let waiting = tokio::task::spawn_blocking(move || Flock::lock(file, arg).ok());
            Guard(waiting.await.ok().flatten())
        }
        // A file system without locks: the cache is used as terraform uses it.
        Err(_) => Guard(None),
    }
}

fn lock_target(cache: &Path) -> io::Result<File> {
    fs::create_dir_all(cache)?;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o666).open(cache.join(".knoll.lock"))
}

fn usage(cache: &Path, module: &Path, lock_file: Option<&str>) -> Use {
    let own = fs::read_to_string(module.join(".terraform.lock.hcl")).ok();
    if let Some(lock) = own.as_deref().or(lock_file) {
        let there = |(source, version): (&str, &str)| cache.join(source).join(version).is_dir();
        let all_there = locked(lock).count() > 0 && locked(lock).all(there);
        return if all_there { Use::Read } else { Use::Write };
    }
    if is_plain(module) { Use::None } else { Use::Write }
}

/// The providers of a lock file, with the version that is locked.
fn locked(lock: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut source = None;
    lock.lines().filter_map(move |line| {
        let quoted = line.split('"').nth(1);
        match line.trim_start() {
            text if text.starts_with("provider ") => {
                source = quoted;
                None
            }
            text if text.starts_with("version ") => Some((source?, quoted?)),
            _ => None,
        }
    })
}

/// Whether a module surely needs no provider: it has only terraform's own resources, and no other modules.
fn is_plain(module: &Path) -> bool {
    let Ok(entries) = fs::read_dir(module) else { return false };
    entries.flatten().all(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("knoll_") {
            return true;
        }
        if name.ends_with(".tf.json") || name.ends_with(".tofu.json") {
            return false;
        }
        if !name.ends_with(".tf") && !name.ends_with(".tofu") {
            return true;
        }
        fs::read_to_string(entry.path()).is_ok_and(|text| text.lines().all(is_plain_line))
    })
}

fn is_plain_line(line: &str) -> bool {
    let line = line.trim_start();
    let block = line.split(['"', '{', ' ']).next().unwrap_or_default();
    match block {
        "provider" | "required_providers" | "module" | "import" => false,
        "resource" | "data" | "ephemeral" => {
            line.split('"').nth(1).is_some_and(|kind| kind == "terraform_data" || kind == "terraform_remote_state")
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LOCK: &str = r#"
provider "example.com/knoll/time" {
  version     = "0.14.2"
  constraints = "0.14.2"
  hashes = [
    "h1:abc",
  ]
}
"#;

    #[test]
    fn the_cache_is_held_alone_only_by_those_that_may_write_to_it() {
        let home = tempfile::tempdir().unwrap();
        let (cache, module) = (home.path().join("cache"), home.path().join("module"));
        fs::create_dir_all(&module).unwrap();
        let write = |text: &str| fs::write(module.join("main.tf"), text).unwrap();
        let check = |lock, expect| assert_eq!(usage(&cache, &module, lock), expect);
        write("resource \"terraform_data\" \"a\" {\n  input = \"module x\"\n}\noutput \"o\" { value = 1 }\n");
        check(None, Use::None);
        for text in [
            "resource \"time_static\" \"a\" {}",
            "module \"m\" { source = \"./m\" }",
            "terraform {\n  required_providers {\n  }\n}",
            "provider \"time\" {}",
        ] {
            write(text);
            check(None, Use::Write);
        }
        check(Some(LOCK), Use::Write);
        fs::create_dir_all(cache.join("example.com/knoll/time/0.14.2")).unwrap();
        check(Some(LOCK), Use::Read);
        fs::write(module.join("x.tf.json"), "{}").unwrap();
        check(None, Use::Write);
    }

    #[test]
    fn providers_are_read_from_a_lock_file() {
        let all: Vec<_> = locked(LOCK).collect();
        assert_eq!(all, [("example.com/knoll/time", "0.14.2")]);
    }
}
