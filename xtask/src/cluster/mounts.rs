//! What is mounted inside a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::mount::{MntFlags, umount2};

/// Unmounts everything inside a folder, what was mounted last first.
pub fn unmount_all(folder: &Path) -> anyhow::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read what is mounted")?;
    for mount in parse(&table).into_iter().rev().filter(|mount| mount.point.starts_with(folder)) {
        match umount2(&mount.point, MntFlags::MNT_DETACH) {
            // It went with the one that it lay in.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot unmount {}", mount.point.display()));
            }
        }
    }
    Ok(())
}

/// The kind of the file system that a folder lies on.
pub fn file_system(folder: &Path) -> Option<String> {
    let mounts = parse(&fs::read_to_string("/proc/self/mountinfo").ok()?);
    let over = mounts.into_iter().filter(|mount| folder.starts_with(&mount.point));
    // Of two mounts at one place the later one is seen.
    over.max_by_key(|mount| mount.point.components().count()).map(|mount| mount.kind)
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    kind: String,
}

fn parse(table: &str) -> Vec<Mount> {
    table
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = unescape(before.split(' ').nth(4)?);
            Some(Mount { point: PathBuf::from(point), kind: after.split(' ').next()?.to_owned() })
        })
        .collect()
}

/// The kernel writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read() {
        let table = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                     36 22 0:32 / /a\\040b/c rw,nosuid shared:1 - tmpfs tmpfs rw,size=4k\n";
        let mount = |point: &str, kind: &str| Mount { point: point.into(), kind: kind.to_owned() };
        assert_eq!(parse(table), [mount("/", "ext4"), mount("/a b/c", "tmpfs")]);
    }
}
