//! Reads the objects of a version from files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use knoll_core::atom::template;

/// The maximum size of an AtomVersion's template.
const MAX_TEMPLATE_BYTES: usize = 1024 * 1024;

/// The name of the Atom and the path of its objects.
#[derive(clap::Args)]
pub struct FilesArgs {
    /// The name of the atom [default: the name of the directory or file]
    #[arg(add = crate::complete::atoms())]
    name: Option<String>,
    /// A directory of YAML files, a file, or `-` for standard input
    #[arg(long = "filename", short = 'f', env = "KNOLL_FILENAME", value_name = "PATH")]
    path: PathBuf,
}

pub struct Template {
    /// The name of the Atom.
    pub atom: String,
    /// The YAML documents.
    pub text: String,
}

impl Template {
    /// The name of the version, derived from the content: equal objects have the same version.
    pub fn version(&self) -> String {
        let digest = template::digest(&self.text);
        let hash: String = digest.trim_start_matches("sha256:").chars().take(10).collect();
        format!("{}-{hash}", self.atom)
    }
}

impl FilesArgs {
    /// Reads and parses the objects.
    pub fn read(&self) -> Result<Template> {
        let text = read(&self.path)?;
        let shown = self.path.display();
        template::parse(&text).with_context(|| format!("invalid objects in `{shown}`"))?;
        if text.len() > MAX_TEMPLATE_BYTES {
            bail!(
                "the objects in `{shown}` have {} bytes; the maximum is {MAX_TEMPLATE_BYTES}\n  move some of them to another atom",
                text.len()
            );
        }
        let atom = match &self.name {
            Some(name) => name.clone(),
            None => self.name_of_path()?,
        };
        Ok(Template { atom, text })
    }

    fn name_of_path(&self) -> Result<String> {
        let full = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let name = full.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
        let name: String =
            name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let name = name.trim_matches('-');
        if name.is_empty() || self.path == Path::new("-") {
            bail!("no name given for the atom\n  use `knoll atom apply NAME -f {}`", self.path.display());
        }
        Ok(name.to_owned())
    }
}

fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("cannot read standard input");
    }
    let shown = path.display();
    if !path.is_dir() {
        return fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"));
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot read the directory `{shown}`"))? {
        let file = entry.with_context(|| format!("cannot read the directory `{shown}`"))?.path();
        let known =
            file.extension().and_then(|kind| kind.to_str()).is_some_and(|kind| ["yaml", "yml", "json"].contains(&kind));
        if known && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("the directory `{shown}` contains no YAML or JSON files\n  use another path with -f");
    }
    let mut text = String::new();
    for file in files {
        let part = fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        text.push_str("---\n");
        text.push_str(part.trim_end());
        text.push('\n');
    }
    Ok(text)
}
