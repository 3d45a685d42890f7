//! Selects the files of a bundle.
//!
//! *Guarantees.* Every file of the bundle lies in the module's directory or in that of a local module it refers to.
//! States, `.terraform` and `.git` are never included, whatever `.terraformignore` says, and no symlink leads outside. The
//! variable files of a user's directory are kept apart from the bundle, which everybody in the namespace may read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use knoll_bundle::{File, Files};

use super::{ModuleError, references};

type Result<T> = std::result::Result<T, ModuleError>;

/// The file with exclusion rules, in `.gitignore` syntax.
const IGNORE_FILE: &str = ".terraformignore";
/// Rules are compiled in memory; those of the largest repositories have a few hundred lines.
const LARGEST_IGNORE_FILE: u64 = 1 << 20;
/// A larger directory is not a module; the user is probably in the wrong one. The operator holds all files in memory.
const MAX_BYTES: u64 = 128 << 20;

/// The files of a module, ready to be packed.
#[derive(Debug)]
pub struct Module {
    /// The files by path, relative to the common root of all of them.
    pub files: Files,
    /// The content of the variable files by path, relative to the same root; none with [`VariableFiles::Included`].
    pub variables: BTreeMap<String, Vec<u8>>,
    /// The paths of the named files, relative to the module's own directory and in their order.
    pub named: Vec<String>,
    /// The path of the module's own directory; empty if it is the common root.
    pub path: String,
    /// Symlinks that were skipped because their target is outside.
    pub left_out: Vec<PathBuf>,
}

/// Where variable files (`*.tfvars`, `*.tfvars.json`) go.
#[derive(Clone, Copy, Debug)]
pub enum VariableFiles<'a> {
    /// Into the bundle, as all files: their source is as public as the bundle.
    Included,
    /// To [`Module::variables`], together with the files of these paths, which may lie outside of the module.
    Apart(&'a [PathBuf]),
}

/// Collects the files of the module in `folder`. If `within` is given, files outside of it are skipped.
///
/// # Errors
/// If a file cannot be read, or the directory is too large.
pub fn collect(folder: &Path, within: Option<&Path>, variables: VariableFiles<'_>) -> Result<Module> {
    let (apart, extra) = match variables {
        VariableFiles::Included => (false, &[][..]),
        VariableFiles::Apart(extra) => (true, extra),
    };
    let root = folder.canonicalize().map_err(ModuleError::read(folder))?;
    let within = within.map(|within| within.canonicalize().map_err(ModuleError::read(within))).transpose()?;
    let mut named = Vec::new();
    for path in extra {
        named.push(root.join(path).canonicalize().map_err(ModuleError::read(path))?);
    }
    let mut closure = references::closure(&root, within.as_deref());
    closure.insert(root.clone());
    let folders = outermost(closure);
    let base = common(folders.iter().map(PathBuf::as_path).chain(named.iter().filter_map(|path| path.parent())));
    let mut walk =
        Walk { base: &base, apart, files: Files::new(), variables: BTreeMap::new(), links: Vec::new(), size: 0 };
    for folder in &folders {
        walk.folder(folder, &rules(folder, within.as_deref())?)?;
    }
    for path in &named {
        walk.variable_file(path)?;
    }
    let left_out = walk.take_links();
    let Walk { files, variables, .. } = walk;
    let named = named.iter().map(|path| upwards(&root, path)).collect();
    Ok(Module { path: relative(&root, &base), files, variables, named, left_out })
}

/// Removes directories that lie inside of another one in the set.
fn outermost(folders: BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    // A directory sorts before its content.
    for folder in folders {
        if !kept.iter().any(|outer| folder.starts_with(outer)) {
            kept.push(folder);
        }
    }
    kept
}

/// The common ancestor of the paths.
fn common<'a>(paths: impl Iterator<Item = &'a Path>) -> PathBuf {
    paths
        .map(Path::to_owned)
        .reduce(|shared, path| {
            shared.components().zip(path.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
        })
        .unwrap_or_default()
}

fn rules(folder: &Path, within: Option<&Path>) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    let path = folder.join(IGNORE_FILE);
    let refused = |why: String| ModuleError::Ignore { path: path.clone(), why };
    if let Some(file) = references::regular(&path, within) {
        let text = references::read_bounded(&file, LARGEST_IGNORE_FILE).map_err(ModuleError::read(&path))?;
        for line in String::from_utf8_lossy(&text).lines() {
            builder.add_line(None, line).map_err(|error| refused(error.to_string()))?;
        }
    }
    builder.build().map_err(|error| refused(error.to_string()))
}

/// Whether a file is always excluded.
fn is_private(name: &str, is_folder: bool) -> bool {
    if is_folder {
        return matches!(name, ".git" | ".terraform" | "terraform.tfstate.d");
    }
    name.ends_with(".tfstate") || name.contains(".tfstate.") || name == ".git" || name == "crash.log"
}

/// Whether terraform reads a file of this name for the values of variables.
fn is_variable_file(name: &str) -> bool {
    name.ends_with(".tfvars") || name.ends_with(".tfvars.json")
}

struct Walk<'a> {
    base: &'a Path,
    /// Whether variable files are kept apart.
    apart: bool,
    files: Files,
    variables: BTreeMap<String, Vec<u8>>,
    links: Vec<PathBuf>,
    size: u64,
}

impl Walk<'_> {
    /// Adds the content of `folder` that `rules` do not exclude.
    fn folder(&mut self, folder: &Path, rules: &Gitignore) -> Result<()> {
        for entry in std::fs::read_dir(folder).map_err(ModuleError::read(folder))? {
            let entry = entry.map_err(ModuleError::read(folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(ModuleError::read(folder))?);
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_private(&name, kind.is_dir()) || rules.matched(&path, kind.is_dir()).is_ignore() {
                continue;
            }
            if kind.is_dir() {
                self.folder(&path, rules)?;
            } else if kind.is_symlink() {
                self.links.push(path);
            } else if kind.is_file() && self.apart && is_variable_file(&name) {
                self.variable_file(&path)?;
            } else if kind.is_file() {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    fn variable_file(&mut self, path: &Path) -> Result<()> {
        let content = self.read(path)?;
        let name = relative(path, self.base);
        // A file that the user named may also be one of the module's.
        self.files.remove(&name);
        self.variables.insert(name, content);
        Ok(())
    }

    /// The content of a file, which counts towards the size of the module.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>> {
        let too_large = || ModuleError::TooLarge { folder: self.base.to_owned(), limit: MAX_BYTES >> 20 };
        let content = references::read_bounded(path, MAX_BYTES - self.size).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => too_large(),
            _ => ModuleError::read(path)(error),
        })?;
        self.size += content.len() as u64;
        Ok(content)
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        let metadata = path.metadata().map_err(ModuleError::read(path))?;
        let content = self.read(path)?;
        let executable = metadata.permissions().mode() & 0o100 != 0;
        self.files.insert(relative(path, self.base), File::Plain { content, executable });
        Ok(())
    }

    /// Adds the symlinks whose targets are in the bundle; returns the others. A symlink to a variable file, or to a
    /// directory of nothing else, becomes a copy, because its target is not in the bundle.
    fn take_links(&mut self) -> Vec<PathBuf> {
        let mut left_out = Vec::new();
        for link in std::mem::take(&mut self.links) {
            if let Some(target) = self.inside(&link) {
                self.files.insert(relative(&link, self.base), File::Link { target });
                continue;
            }
            let copies = self.copies(&link);
            if copies.is_empty() {
                left_out.push(link);
            }
            self.variables.extend(copies);
        }
        left_out.sort();
        left_out
    }

    /// The variable files that a symlink leads to, by their paths through the symlink.
    fn copies(&self, link: &Path) -> Vec<(String, Vec<u8>)> {
        let target = link.canonicalize().ok().and_then(|real| relative_in(&real, self.base));
        let (Some(target), name) = (target, relative(link, self.base)) else { return Vec::new() };
        let through = |path: &str| {
            let rest = path.strip_prefix(&target)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{name}{rest}"))
        };
        self.variables.iter().filter_map(|(path, content)| Some((through(path)?, content.clone()))).collect()
    }

    /// The target of a symlink relative to its directory, if it is in the bundle.
    fn inside(&self, link: &Path) -> Option<String> {
        let real = link.canonicalize().ok()?;
        let name = relative_in(&real, self.base)?;
        let below = format!("{name}/");
        let there = self.files.contains_key(&name) || self.files.keys().any(|file| file.starts_with(&below));
        let from = link.parent()?;
        there.then(|| upwards(from, &real))
    }
}

/// `path` relative to `base`, with `/` as separator.
fn relative(path: &Path, base: &Path) -> String {
    relative_in(path, base).unwrap_or_default()
}

fn relative_in(path: &Path, base: &Path) -> Option<String> {
    let parts = path.strip_prefix(base).ok()?.components();
    Some(parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect::<Vec<_>>().join("/"))
}

/// The relative path from the directory `from` to `to`.
fn upwards(from: &Path, to: &Path) -> String {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| "..".to_owned());
    let down = to.components().skip(shared).filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
        _ => None,
    });
    up.chain(down).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates files in a temporary directory. A name with ` -> ` is a symlink.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let (name, target) = name.split_once(" -> ").map_or((*name, None), |(name, target)| (name, Some(target)));
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match target {
                Some(target) => symlink(target, path).unwrap(),
                None => std::fs::write(path, content).unwrap(),
            }
        }
        home
    }

    fn names(module: &Module) -> Vec<&str> {
        module.files.keys().map(String::as_str).collect()
    }

    #[test]
    fn secrets_by_accident_and_what_is_ignored_stay_out() {
        let home = tree(&[
            ("main.tf", ""),
            ("terraform.tfstate", "{}"),
            ("terraform.tfstate.backup", "{}"),
            ("sub/old.tfstate.1.backup", "{}"),
            (".terraform/providers/x", ""),
            ("sub/.terraform/x", ""),
            (".git/HEAD", ""),
            (".terraform.lock.hcl", ""),
            (".terraformignore", "docs/\n*.log\n!terraform.tfstate\n!.terraform\n"),
            ("docs/a.md", ""),
            ("a.log", ""),
            ("prod.tfvars", ""),
        ]);
        let module = collect(home.path(), None, VariableFiles::Included).unwrap();
        assert_eq!(names(&module), [".terraform.lock.hcl", ".terraformignore", "main.tf", "prod.tfvars"]);
        assert_eq!(module.path, "");
    }

    #[test]
    fn modules_outside_come_along_and_the_module_keeps_its_place() {
        let home = tree(&[
            ("live/net/main.tf", "module \"a\" { source = \"../../modules/a\" }"),
            ("live/other/main.tf", ""),
            ("modules/a/main.tf", ""),
            ("modules/a/terraform.tfstate", ""),
            ("modules/b/main.tf", ""),
            ("env/prod.tfvars", ""),
        ]);
        let folder = home.path().join("live/net");
        let absolute = home.path().join("env/prod.tfvars").canonicalize().unwrap();
        let extra = ["../../env/prod.tfvars".into(), absolute];
        let module = collect(&folder, None, VariableFiles::Apart(&extra)).unwrap();
        assert_eq!(names(&module), ["live/net/main.tf", "modules/a/main.tf"]);
        assert_eq!(module.variables.keys().collect::<Vec<_>>(), ["env/prod.tfvars"]);
        assert_eq!(module.named, ["../../env/prod.tfvars", "../../env/prod.tfvars"]);
        assert_eq!(module.path, "live/net");
    }

    #[test]
    fn variable_files_of_a_user_are_kept_apart() {
        let home = tree(&[
            ("main.tf", ""),
            ("terraform.tfvars", "a"),
            ("x.auto.tfvars.json", "b"),
            ("env/prod.tfvars", "c"),
            ("linked.auto.tfvars -> env/prod.tfvars", ""),
            ("also -> terraform.tfvars", ""),
            ("folder -> env", ""),
            ("backend.hcl", "d"),
            (".terraformignore", "old.tfvars\n"),
            ("old.tfvars", "e"),
        ]);
        let module = collect(home.path(), None, VariableFiles::Apart(&["backend.hcl".into()])).unwrap();
        assert_eq!(names(&module), [".terraformignore", "main.tf"]);
        let texts = module.variables.iter().map(|(name, text)| (name.as_str(), std::str::from_utf8(text).unwrap()));
        let expect = [
            ("also", "a"),
            ("backend.hcl", "d"),
            ("env/prod.tfvars", "c"),
            ("folder/prod.tfvars", "c"),
            ("linked.auto.tfvars", "c"),
            ("terraform.tfvars", "a"),
            ("x.auto.tfvars.json", "b"),
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expect);
        assert!(module.left_out.is_empty());
    }

    #[test]
    fn nothing_beyond_a_boundary_comes_along() {
        let home = tree(&[
            ("repo/net/main.tf", "module \"a\" { source = \"../../away\" }\nmodule \"b\" { source = \"../b\" }"),
            ("repo/b/main.tf", ""),
            ("repo/b/link.tf -> ../../away/main.tf", ""),
            ("away/main.tf", "secret"),
        ]);
        let module =
            collect(&home.path().join("repo/net"), Some(&home.path().join("repo")), VariableFiles::Included).unwrap();
        assert_eq!(names(&module), ["b/main.tf", "net/main.tf"]);
        assert_eq!(module.path, "net");
    }

    #[test]
    fn links_that_stay_inside_are_kept_and_others_are_left_out() {
        let home = tree(&[
            ("m/main.tf", ""),
            ("m/sub/x.tf", ""),
            ("m/sub/main.tf -> ../main.tf", ""),
            ("m/folder -> sub", ""),
            ("m/away -> /etc/hosts", ""),
            ("m/up -> ../secret", ""),
            ("m/nowhere -> gone", ""),
            ("m/state -> terraform.tfstate", ""),
            ("m/terraform.tfstate", ""),
            ("secret", "x"),
        ]);
        let module = collect(&home.path().join("m"), None, VariableFiles::Included).unwrap();
        assert_eq!(names(&module), ["folder", "main.tf", "sub/main.tf", "sub/x.tf"]);
        assert_eq!(module.files["sub/main.tf"], File::Link { target: "../main.tf".into() });
        let left_out: Vec<_> = module.left_out.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(left_out, ["away", "nowhere", "state", "up"]);
    }

    #[test]
    fn what_is_executable_stays_executable() {
        let home = tree(&[("run.sh", "echo")]);
        std::fs::set_permissions(home.path().join("run.sh"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let module = collect(home.path(), None, VariableFiles::Included).unwrap();
        assert_eq!(module.files["run.sh"], File::Plain { content: b"echo".to_vec(), executable: true });
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let home = tree(&[("main.tf", "")]);
        let error = collect(home.path(), None, VariableFiles::Apart(&["prod.tfvars".into()])).unwrap_err().to_string();
        assert!(error.starts_with("cannot read `prod.tfvars`: "), "{error}");
    }
}
