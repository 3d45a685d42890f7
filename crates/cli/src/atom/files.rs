//! Reads the objects of a version from files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use knoll_core::atom::template::{self, InputValues};
use serde_json::Value;

use super::places::{self, Located, Source};

/// The maximum size of an AtomVersion's template.
const MAX_TEMPLATE_BYTES: usize = 1024 * 1024;

/// The name of the Atom and the path of its objects.
#[derive(clap::Args)]
pub struct FilesArgs {
    /// The name of the atom [default: the name of the directory or file]
    #[arg(add = crate::complete::atoms(), value_parser = crate::workspace::plain_name::<knoll_api::Atom>)]
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
    /// The objects in their order, and where they are written.
    pub objects: Vec<Located>,
}

impl Template {
    /// The name of the version, derived from the content: equal objects have the same version.
    pub fn version(&self) -> String {
        let digest = template::digest(&self.text);
        let hash: String = digest.trim_start_matches("sha256:").chars().take(10).collect();
        format!("{}-{hash}", self.atom)
    }

    /// The objects with the values of inputs.
    pub fn render(&self, inputs: &InputValues) -> Result<Vec<Value>> {
        places::render(&self.text, &self.objects, inputs)
    }
}

impl FilesArgs {
    /// Reads and parses the objects.
    pub fn read(&self) -> Result<Template> {
        let sources = read(&self.path)?;
        let shown = self.path.display();
        let objects = places::parse(&sources)?;
        let text = join(sources, self.path.is_dir());
        template::parse(&text).with_context(|| format!("invalid objects in `{shown}`"))?;
        check_kinds(&objects, &shown.to_string())?;
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
        Ok(Template { atom, text, objects })
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

/// An Atom's own manifests are written as they are. Put into a template, they would be objects of another Atom.
fn check_kinds(objects: &[Located], shown: &str) -> Result<()> {
    let is_own = |Located { object, .. }: &&Located| {
        let of_knoll = object["apiVersion"].as_str().is_some_and(|version| version.starts_with("knoll.dev/"));
        of_knoll && matches!(object["kind"].as_str(), Some("Atom" | "AtomVersion"))
    };
    let Some(Located { place, object: own }) = objects.iter().find(is_own) else { return Ok(()) };
    let (kind, name) = (own["kind"].as_str().unwrap_or_default(), own["metadata"]["name"].as_str().unwrap_or_default());
    bail!(
        "{place}: this is the {kind} `{name}`; `knoll atom apply` takes the objects that an atom consists of\n  \
         use `kubectl apply -f {shown}` for manifests of atoms"
    )
}

fn read(path: &Path) -> Result<Vec<Source>> {
    if path == Path::new("-") {
        let text = std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?;
        return Ok(vec![Source { file: "<stdin>".to_owned(), text }]);
    }
    let shown = path.display();
    if !path.is_dir() {
        return Ok(vec![read_file(path)?]);
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
    files.iter().map(|file| read_file(file)).collect()
}

fn read_file(path: &Path) -> Result<Source> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{file}`"))?;
    Ok(Source { file, text })
}

/// The text of a template. The files of a directory become documents of it.
fn join(sources: Vec<Source>, is_directory: bool) -> String {
    let texts = sources.into_iter().map(|source| source.text);
    if !is_directory {
        return texts.collect();
    }
    texts.map(|text| format!("---\n{}\n", text.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn manifests_of_atoms_are_not_objects_of_an_atom() {
        let object =
            |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}});
        let check = |kinds: &[(&str, &str)]| {
            let texts = kinds.iter().map(|(version, kind)| format!("---\n{}\n", object(version, kind)));
            let source = Source { file: "web/a.yaml".into(), text: texts.collect() };
            check_kinds(&places::parse(&[source]).unwrap(), "web/").map_err(|error| error.to_string())
        };
        assert_eq!(check(&[("v1", "ConfigMap"), ("knoll.dev/v1alpha1", "Stack"), ("other.dev/v1", "Atom")]), Ok(()));
        for kind in ["Atom", "AtomVersion"] {
            let said = check(&[("v1", "ServiceAccount"), ("knoll.dev/v1alpha1", kind)]).err().unwrap_or_default();
            assert!(
                said.contains(&format!("web/a.yaml:4: this is the {kind} `web`"))
                    && said.contains("kubectl apply -f web/"),
                "{said}"
            );
        }
    }
}
