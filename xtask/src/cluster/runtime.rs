//! containerd: the machine's own where it has image volumes, else one that is built once from the Go module proxy into the
//! user's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::place;
use crate::go::{GoSource, module};
use crate::tools;

/// The version that is built.
const VERSION: &str = "2.1.9";
/// The first version with image volumes.
const OLDEST: (u32, u32) = (2, 1);

const MODULE: &str = "github.com/containerd/containerd/v2";

/// The server, its command line, and what holds the containers of a pod.
const PROGRAMS: [&str; 3] = ["containerd", "ctr", "containerd-shim-runc-v2"];

/// The programs, all in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Containerd(PathBuf);

impl Containerd {
    /// Where the programs are, or will be once they are built.
    pub fn find() -> anyhow::Result<Containerd> {
        let machine = tools::find_system(PROGRAMS[0]).filter(|server| is_new(server));
        let machine = machine.and_then(|server| Some(Containerd(server.parent()?.to_owned())));
        match machine.filter(Containerd::is_there) {
            Some(containerd) => Ok(containerd),
            None => Ok(Containerd(home()?.join("bin"))),
        }
    }

    /// The programs, after building those that are missing.
    pub fn ensure() -> anyhow::Result<Containerd> {
        let containerd = Containerd::find()?;
        if containerd.is_there() {
            return Ok(containerd);
        }
        let (home, bin) = (home()?, &containerd.0);
        fs::create_dir_all(bin).with_context(|| format!("cannot make the folder {}", bin.display()))?;
        let _lock = place::lock(&home.join("lock"), "another run builds containerd")?;
        println!("Building containerd {VERSION} into {}: this is done once", bin.display());
        let tag = format!("v{VERSION}");
        let what = format!("containerd {VERSION}, or install {}.{} or newer", OLDEST.0, OLDEST.1);
        let source = GoSource::new(home.join("src"), MODULE, &tag, &what, |theirs| {
            module::program("containerd", MODULE, &tag, theirs)
        })?;
        let flags = format!("-s -w -X {MODULE}/version.Version={tag}");
        for program in PROGRAMS.iter().filter(|program| !bin.join(program).is_file()) {
            source.build(&format!("{MODULE}/cmd/{program}"), &flags, &bin.join(program))?;
        }
        Ok(containerd)
    }

    pub fn server(&self) -> PathBuf {
        self.0.join(PROGRAMS[0])
    }

    pub fn ctr(&self) -> PathBuf {
        self.0.join(PROGRAMS[1])
    }

    /// What holds the containers of a pod.
    pub fn shim(&self) -> PathBuf {
        self.0.join(PROGRAMS[2])
    }

    fn is_there(&self) -> bool {
        PROGRAMS.iter().all(|program| self.0.join(program).is_file())
    }
}

fn home() -> anyhow::Result<PathBuf> {
    Ok(place::user_cache()?.join("knoll/containerd").join(VERSION))
}

fn is_new(server: &Path) -> bool {
    let output = Command::new(server).arg("--version").output();
    output.is_ok_and(|output| has_image_volumes(&String::from_utf8_lossy(&output.stdout)))
}

/// Whether a version has image volumes. `containerd --version` prints its name, its module and its version.
fn has_image_volumes(printed: &str) -> bool {
    let version = printed.split_whitespace().nth(2).unwrap_or_default().trim_start_matches('v');
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_serves_where_it_has_image_volumes() {
        assert!(has_image_volumes("containerd github.com/containerd/containerd/v2 v2.1.9 e1b2"));
        assert!(has_image_volumes("containerd github.com/containerd/containerd/v2 2.2.0~rc1 "));
        assert!(!has_image_volumes("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1"));
        assert!(!has_image_volumes("containerd github.com/containerd/containerd/v2 v2.0.5 x"));
        assert!(!has_image_volumes(""));
    }
}
