//! Terraform's plugin cache, shared by runs that know nothing of each other.
//!
//! Terraform does not make its cache safe for several at once: an `init` writes over packages that it has no checksum
//! for, also while another run executes them. So each run has a cache of its own, in which the packages of its lock
//! file are links to those that all share, and what `init` has added is shared afterwards. A shared package lies under
//! its checksum, appears at once and never changes; nobody waits for anybody.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The folder of the caches of runs, beside the packages.
const RUNS: &str = ".runs";
/// No run takes that long: what is older was left by one that was killed.
const ABANDONED: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// `HOST/NAMESPACE/TYPE/VERSION/PLATFORM`.
const DEPTH: usize = 5;

/// The plugin cache of one run.
pub struct Plugins {
    shared: PathBuf,
    own: TempDir,
}

impl Plugins {
    /// A cache beside what all runs share.
    pub fn open(shared: &Path) -> io::Result<Self> {
        let runs = shared.join(RUNS);
        fs::create_dir_all(&runs)?;
        sweep(&runs);
        Ok(Plugins { shared: shared.to_owned(), own: TempDir::new_in(runs)? })
    }

    /// What terraform is told to use.
    pub fn path(&self) -> &Path {
        self.own.path()
    }

    /// Links the packages that are locked and there.
    pub fn lend(&self, lock_file: &str) -> io::Result<()> {
        for (provider, checksum) in locked(lock_file) {
            for platform in subfolders(&self.shared.join(&provider))? {
                let package = platform.join(folder_name(checksum));
                if package.is_dir() {
                    let link = self.own.path().join(&provider).join(platform.file_name().unwrap_or_default());
                    fs::create_dir_all(link.parent().unwrap_or(self.own.path()))?;
                    symlink(&package, &link)?;
                }
            }
        }
        Ok(())
    }

    /// Shares what `init` has added. The module's own links then go there, and outlive this cache.
    pub fn share(&self, module: &Path) -> io::Result<()> {
        for package in packages(self.own.path(), DEPTH)? {
            // A link is a package that is shared already, or one of a mirror, which is somebody else's.
            if package.is_symlink() {
                continue;
            }
            let place = package.strip_prefix(self.own.path()).unwrap_or(&package).to_owned();
            let folder = self.shared.join(&place);
            fs::create_dir_all(&folder)?;
            let target = folder.join(folder_name(&checksum(&package)?));
            let used = module.join(".terraform/providers").join(&place);
            // Another run may have been first; then ours goes with this run.
            if used.is_symlink() && !target.exists() && fs::rename(&package, &target).is_ok() {
                fs::remove_file(&used)?;
                symlink(&target, &used)?;
            }
        }
        Ok(())
    }
}

/// Removes what killed runs have left.
fn sweep(runs: &Path) {
    let old = |entry: &fs::DirEntry| {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
    };
    for entry in fs::read_dir(runs).into_iter().flatten().flatten().filter(old) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// The providers of a lock file, each with its version and one of its checksums of unpacked packages.
fn locked(lock: &str) -> Vec<(PathBuf, &str)> {
    let (mut source, mut version) = (None, None);
    let mut found = Vec::new();
    for line in lock.lines().map(str::trim_start) {
        let quoted = line.split('"').nth(1);
        match quoted {
            Some(_) if line.starts_with("provider ") => (source, version) = (quoted, None),
            Some(_) if line.starts_with("version ") => version = quoted,
            Some(checksum) if checksum.starts_with("h1:") => {
                if let (Some(source), Some(version)) = (source, version) {
                    found.push((Path::new(source).join(version), checksum));
                }
            }
            _ => {}
        }
    }
    found
}

/// The folders so many levels below.
fn packages(folder: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
    if depth == 0 {
        return Ok(vec![folder.to_owned()]);
    }
    let below: io::Result<Vec<_>> = subfolders(folder)?.iter().map(|folder| packages(folder, depth - 1)).collect();
    Ok(below?.concat())
}

/// The folders in a folder, links to folders included; none if it is not there.
fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(|path| path.is_dir()).collect())
}

/// A checksum as a name of a folder.
fn folder_name(checksum: &str) -> String {
    let bytes = STANDARD.decode(checksum.trim_start_matches("h1:")).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The checksum that lock files have for an unpacked package: that of a list of its files with their checksums.
fn checksum(package: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(package, "", &mut files)?;
    files.sort();
    let mut list = Sha256::new();
    for name in files {
        list.update(format!("{}  {name}\n", hex(&content_of(&package.join(&name))?)));
    }
    Ok(format!("h1:{}", STANDARD.encode(list.finalize())))
}

fn content_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().to_vec()),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push(name);
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const PLACE: &str = "example.com/knoll/time/0.14.2/linux_amd64";

    fn lock_file(checksum: &str) -> String {
        let hashes = format!("  hashes = [\n    \"{checksum}\",\n    \"zh:abc\",\n  ]\n");
        format!(
            "provider \"example.com/knoll/time\" {{\n  version     = \"0.14.2\"\n  constraints = \"1.0\"\n{hashes}}}\n"
        )
    }

    /// What `init` does with a provider that it downloads.
    fn install(plugins: &Plugins, module: &Path, content: &str) {
        let package = plugins.path().join(PLACE);
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("provider"), content).unwrap();
        let used = module.join(".terraform/providers").join(PLACE);
        fs::create_dir_all(used.parent().unwrap()).unwrap();
        symlink(&package, used).unwrap();
    }

    #[test]
    fn a_checksum_is_that_of_lock_files() {
        // As `sha256sum` and the definition of `h1:` have it for these two files.
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        fs::write(folder.path().join("sub/a"), "").unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let list = format!("{empty}  b\n{empty}  sub/a\n");
        assert_eq!(checksum(folder.path()).unwrap(), format!("h1:{}", STANDARD.encode(Sha256::digest(list))));
    }

    #[test]
    fn what_one_run_has_installed_is_lent_to_the_next_and_outlives_its_own_cache() {
        let home = tempfile::tempdir().unwrap();
        let (shared, module) = (home.path().join("shared"), home.path().join("module"));
        let first = Plugins::open(&shared).unwrap();
        install(&first, &module, "one");
        let sum = checksum(&first.path().join(PLACE)).unwrap();
        first.share(&module).unwrap();
        drop(first);
        let used = |module: &Path| fs::read_to_string(module.join(".terraform/providers").join(PLACE).join("provider"));
        assert_eq!(used(&module).unwrap(), "one");

        let second = Plugins::open(&shared).unwrap();
        second.lend(&lock_file(&sum)).unwrap();
        assert_eq!(fs::read_to_string(second.path().join(PLACE).join("provider")).unwrap(), "one");
        // Nothing is new, so nothing is shared.
        second.share(&module).unwrap();
        assert_eq!(fs::read_dir(shared.join(PLACE)).unwrap().count(), 1);
    }

    #[test]
    fn a_package_of_another_checksum_is_not_lent_and_takes_no_other_place() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        for content in ["one", "other", "one"] {
            let plugins = Plugins::open(&shared).unwrap();
            let module = tempfile::tempdir_in(home.path()).unwrap();
            install(&plugins, module.path(), content);
            plugins.share(module.path()).unwrap();
            let used = module.path().join(".terraform/providers").join(PLACE).join("provider");
            assert_eq!(fs::read_to_string(used).unwrap(), content);
        }
        assert_eq!(fs::read_dir(shared.join(PLACE)).unwrap().count(), 2);
        let plugins = Plugins::open(&shared).unwrap();
        plugins.lend(&lock_file("h1:AAAA")).unwrap();
        assert!(!plugins.path().join(PLACE).exists());
    }

    #[test]
    fn a_package_of_a_mirror_stays_there() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        let plugins = Plugins::open(&shared).unwrap();
        let package = plugins.path().join(PLACE);
        fs::create_dir_all(package.parent().unwrap()).unwrap();
        symlink(home.path(), &package).unwrap();
        plugins.share(home.path()).unwrap();
        assert!(package.is_symlink() && !shared.join(PLACE).exists());
    }
}
