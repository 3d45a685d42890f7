//! A path of the module that is the same for every run on a machine where each pod has another folder.
//!
//! With images, a volume has one `mountPath` in all pods. Where pods are processes of one machine, the volume of each is a
//! folder of its own. `path.cwd` of a plan then differed from that of its apply, which failed, and each plan
//! changed what has the path in it. Terraform's own path is that of `PWD`, where it leads to the working directory. Here
//! it leads there by a file descriptor that all processes of the run inherit: one text, another folder for each run, also
//! for runs at the same time and for processes in other directories.

use std::fs::File;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};

/// The descriptor of the run's folder. Other ones get the lowest free number, which is far below.
const DESCRIPTOR: RawFd = 199;

/// The path of `module` below `root`, by a descriptor that stays open; `None` where there can be none.
pub fn of(root: &Path, module: &Path) -> Option<PathBuf> {
    let inner = module.strip_prefix(root).ok()?;
    let folder = File::open(root).ok()?;
    // Without close-on-exec, so that terraform, its providers and its scripts have it too.
    let number = fcntl(&folder, FcntlArg::F_DUPFD(DESCRIPTOR)).ok()?;
    (number == DESCRIPTOR).then(|| Path::new("/proc/self/fd").join(number.to_string()).join(inner))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;

    #[test]
    fn processes_in_other_directories_reach_the_folder_of_their_run() {
        let root = tempfile::tempdir().unwrap();
        let module = root.path().join("module/deep");
        std::fs::create_dir_all(&module).unwrap();
        std::fs::write(module.join("file"), "here").unwrap();
        assert_eq!(of(root.path(), Path::new("/elsewhere")), None);
        let path = of(root.path(), &module).unwrap();
        assert_eq!(path, Path::new("/proc/self/fd/199/module/deep"));
        let script = format!("cd / && sh -c 'cat {}/file'", path.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "here");
        // The descriptor is taken, so another folder has no such path.
        assert_eq!(of(root.path(), &module), None);
    }
}
