//! A plugin cache that concurrent runs share.
//!
//! Terraform's own cache is not safe for concurrent use: `init` overwrites packages without a known checksum, even
//! while another run executes them. Each run therefore has its own cache directory. The packages of its lock file are
//! links to shared packages, and packages that `init` adds are shared afterwards. A shared package is stored under its
//! checksum, appears atomically and never changes, so no run waits for another.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The directory of the runs' own caches, beside the shared packages.
const RUNS: &str = ".runs";
/// Older directories were left behind by killed runs; no run takes this long.
const ABANDONED: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// `HOST/NAMESPACE/TYPE/VERSION/PLATFORM`.
const DEPTH: usize = 5;

/// The plugin cache of one run.
pub struct Plugins {
    shared: PathBuf,
    own: TempDir,
}

impl Plugins {
    /// Creates a cache beside the shared packages.
    pub fn open(shared: &Path) -> io::Result<Self> {
        let runs = shared.join(RUNS);
        fs::create_dir_all(&runs)?;
        sweep(&runs);
        Ok(Plugins { shared: shared.to_owned(), own: TempDir::new_in(runs)? })
    }

    /// The value for `TF_PLUGIN_CACHE_DIR`.
    pub fn path(&self) -> &Path {
        self.own.path()
    }

    /// Links the shared packages that the lock file names.
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

    /// Moves the packages that `init` added to the shared ones. The module's links then point there, and outlive this
    /// cache.
    pub fn share(&self, module: &Path) -> io::Result<()> {
        for package in packages(self.own.path(), DEPTH)? {
            // A link is already a shared package, or belongs to a mirror.
            if package.is_symlink() {
                continue;
            }
            let path = package.strip_prefix(self.own.path()).unwrap_or(&package).to_owned();
            let folder = self.shared.join(&path);
            fs::create_dir_all(&folder)?;
            let target = folder.join(folder_name(&checksum(&package)?));
            let used = module.join(".terraform/providers").join(&path);
            // Another run may have shared the same package first. Then this copy is deleted with the run.
            if used.is_symlink() && !target.exists() && fs::rename(&package, &target).is_ok() {
                fs::remove_file(&used)?;
                symlink(&target, &used)?;
            }
        }
        Ok(())
    }
}

/// Deletes the caches of killed runs.
fn sweep(runs: &Path) {
    let old = |entry: &fs::DirEntry| {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
    };
    for entry in fs::read_dir(runs).into_iter().flatten().flatten().filter(old) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// The providers of a lock file with their version and one `h1:` checksum.
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

/// The directories this many levels below.
fn packages(folder: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
    if depth == 0 {
        return Ok(vec![folder.to_owned()]);
    }
    let below: io::Result<Vec<_>> = subfolders(folder)?.iter().map(|folder| packages(folder, depth - 1)).collect();
    Ok(below?.concat())
}

/// The subdirectories, including links to directories. None if the directory does not exist.
fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(|path| path.is_dir()).collect())
}

/// A checksum as a directory name.
fn folder_name(checksum: &str) -> String {
    let bytes = STANDARD.decode(checksum.trim_start_matches("h1:")).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The `h1:` checksum of lock files: the hash of a list of the package's files and their hashes.
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

    const PACKAGE: &str = "example.com/knoll/time/0.14.2/linux_amd64";

    fn lock_file(checksum: &str) -> String {
        let hashes = format!("  hashes = [\n    \"{checksum}\",\n    \"zh:abc\",\n  ]\n");
        format!(
            "provider \"example.com/knoll/time\" {{\n  version     = \"0.14.2\"\n  constraints = \"1.0\"\n{hashes}}}\n"
        )
    }

    /// Does what `init` does with a downloaded provider.
    fn install(plugins: &Plugins, module: &Path, content: &str) {
        let package = plugins.path().join(PACKAGE);
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("provider"), content).unwrap();
        let used = module.join(".terraform/providers").join(PACKAGE);
        fs::create_dir_all(used.parent().unwrap()).unwrap();
        symlink(&package, used).unwrap();
    }

    #[test]
    fn a_checksum_is_that_of_lock_files() {
        // The expected value comes from `sha256sum` and the definition of `h1:`.
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
        let sum = checksum(&first.path().join(PACKAGE)).unwrap();
        first.share(&module).unwrap();
        drop(first);
        let used =
            |module: &Path| fs::read_to_string(module.join(".terraform/providers").join(PACKAGE).join("provider"));
        assert_eq!(used(&module).unwrap(), "one");

        let second = Plugins::open(&shared).unwrap();
        second.lend(&lock_file(&sum)).unwrap();
        assert_eq!(fs::read_to_string(second.path().join(PACKAGE).join("provider")).unwrap(), "one");
        // No package is new, so none is shared.
        second.share(&module).unwrap();
        assert_eq!(fs::read_dir(shared.join(PACKAGE)).unwrap().count(), 1);
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
            let used = module.path().join(".terraform/providers").join(PACKAGE).join("provider");
            assert_eq!(fs::read_to_string(used).unwrap(), content);
        }
        assert_eq!(fs::read_dir(shared.join(PACKAGE)).unwrap().count(), 2);
        let plugins = Plugins::open(&shared).unwrap();
        plugins.lend(&lock_file("h1:AAAA")).unwrap();
        assert!(!plugins.path().join(PACKAGE).exists());
    }

    #[test]
    fn a_package_of_a_mirror_stays_there() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        let plugins = Plugins::open(&shared).unwrap();
        let package = plugins.path().join(PACKAGE);
        fs::create_dir_all(package.parent().unwrap()).unwrap();
        symlink(home.path(), &package).unwrap();
        plugins.share(home.path()).unwrap();
        assert!(package.is_symlink() && !shared.join(PACKAGE).exists());
    }
}
