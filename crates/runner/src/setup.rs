//! Puts everything in place that terraform needs: the module, its variables, its state and its settings.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use knoll_api::wire::{Job, JobVariable};
use serde_json::{Map, Value, json};

use crate::tool;

/// What a user's file cannot be called, because terraform reads ours by these names.
const OURS: [&str; 2] = ["knoll_override.tf.json", "knoll_version.tf.json"];
/// Terraform reads `*.auto.tfvars` in the order of their names, and the last one wins: ours come last.
const VARIABLES: &str = "zzzz-knoll";
const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Why the run could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle was refused.
    #[error(transparent)]
    Unpack(#[from] knoll_bundle::UnpackError),
    /// A user's file has a name that we need.
    #[error("the module has a file `{0}`, a name that Knoll uses itself; rename it")]
    Reserved(String),
    /// A variable file has a name that is no file name.
    #[error("`{0}` is no name for a variable file; use a plain name that ends in `.tfvars` or `.tfvars.json`")]
    VariableFile(String),
    /// A variable that goes into the environment is no plain value.
    #[error("the environment variable `{0}` needs a plain value: a string, a number or a boolean")]
    Environment(String),
    /// The disk refused it.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
}

/// Where things are. Everything lies in the run's own volume.
#[derive(Clone, Debug)]
pub struct Folders {
    root: PathBuf,
}

impl Folders {
    /// Below `root`, which need not exist.
    pub fn new(root: &Path) -> Self {
        Folders { root: root.to_owned() }
    }

    /// All of them.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the bundle is unpacked.
    pub fn bundle(&self) -> PathBuf {
        self.root.join("module")
    }

    /// The root module; terraform runs here. The bundle says where it is, so this holds once it is unpacked.
    pub fn module(&self) -> PathBuf {
        let bundle = self.bundle();
        let path = knoll_bundle::module_path(&bundle);
        if path.as_os_str().is_empty() { bundle } else { bundle.join(path) }
    }

    /// The state that terraform's local backend writes.
    pub fn state(&self) -> PathBuf {
        self.root.join("state").join("terraform.tfstate")
    }

    /// The plan. Its name is also printed by terraform.
    pub fn plan(&self) -> PathBuf {
        self.root.join("plan")
    }

    /// The plan as JSON, for hooks.
    pub fn plan_json(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// The dependency lock file.
    pub fn lock_file(&self) -> PathBuf {
        self.module().join(LOCK_FILE)
    }

    /// Scripts of hooks.
    pub fn hooks(&self) -> PathBuf {
        self.root.join("hooks")
    }

    fn settings(&self) -> PathBuf {
        self.root.join("terraformrc")
    }
}

/// The hub's part of what is needed.
pub struct Material {
    /// The module's files; none for a command that needs no module.
    pub bundle: Option<bytes::Bytes>,
    /// The state, when there is one already.
    pub state: Option<bytes::Bytes>,
    /// The plan to apply, when an earlier pod made it.
    pub plan: Option<bytes::Bytes>,
}

/// Puts `material` and the job's variables in place.
///
/// # Errors
/// When something of it cannot be accepted; the message says what.
pub fn prepare(job: &Job, material: &Material, folders: &Folders) -> Result<(), Error> {
    let unpacked = folders.bundle();
    let state = folders.state();
    for folder in [&unpacked, state.parent().unwrap_or(&folders.root), &folders.hooks()] {
        // A container that was restarted finds the remains of the last one.
        match fs::remove_dir_all(folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::Write { path: folder.to_owned(), source });
            }
            _ => {}
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| Error::Write { path: folder.to_owned(), source })?;
    }
    if let Some(bundle) = &material.bundle {
        knoll_bundle::unpack(bundle, &unpacked, |name| !is_left_behind(name, job.managed_state))?;
    }
    let module = folders.module();
    for name in OURS {
        if module.join(name).exists() {
            return Err(Error::Reserved(name.to_owned()));
        }
    }
    if job.managed_state {
        // Relative, so that a plan holds in another pod, whose folders have other names.
        let depth = module.strip_prefix(&unpacked).map_or(0, |path| path.components().count());
        let path = format!("{}../state/terraform.tfstate", "../".repeat(depth));
        let backend = json!({"terraform": {"backend": {"local": {"path": path}}}});
        write(&module.join(OURS[0]), backend.to_string().as_bytes())?;
        if let Some(content) = &material.state {
            write(&state, content)?;
        }
    }
    if let Some(version) = &job.version {
        // Constraints of several files hold together, so the module's own one stays in force.
        let version = json!({"terraform": {"required_version": tool::constraint(version)}});
        write(&module.join(OURS[1]), version.to_string().as_bytes())?;
    }
    if let Some(lock_file) = &job.lock_file
        && !folders.lock_file().exists()
    {
        write(&folders.lock_file(), lock_file.as_bytes())?;
    }
    if let Some(plan) = &material.plan {
        write(&folders.plan(), plan)?;
    }
    write(&folders.settings(), b"")?;
    write_variables(job, &module)
}

/// What a working copy holds beside the module: the remains of running terraform there would be mistaken for ours.
fn is_left_behind(name: &Path, managed_state: bool) -> bool {
    let first = name.iter().next().and_then(OsStr::to_str).unwrap_or_default();
    let state = matches!(first, "terraform.tfstate" | "terraform.tfstate.backup" | "terraform.tfstate.d");
    first == ".terraform" || (managed_state && state)
}

fn write_variables(job: &Job, module: &Path) -> Result<(), Error> {
    for (order, (name, content)) in job.variable_files.iter().enumerate() {
        let bad = || Error::VariableFile(name.clone());
        let plain = Path::new(name).file_name() == Some(OsStr::new(name)) && !name.starts_with('.');
        let (stem, ending) = [".tfvars.json", ".tfvars"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending).map(|stem| (stem, ending)))
            .filter(|_| plain)
            .ok_or_else(bad)?;
        let stem = stem.strip_suffix(".auto").unwrap_or(stem);
        write(&module.join(format!("{VARIABLES}-{order:03}-{stem}.auto{ending}")), content.as_bytes())?;
    }
    let values: Map<String, Value> = job
        .variables
        .iter()
        .filter(|variable| !variable.env && !variable.expression)
        .map(|variable| (variable.key.clone(), variable.value.clone()))
        .collect();
    if values.is_empty() {
        return Ok(());
    }
    write(&module.join(format!("{VARIABLES}-values.auto.tfvars.json")), Value::Object(values).to_string().as_bytes())
}

/// Writes a file that only its owner can read.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(content).map_err(failed)
}

/// The environment of terraform and of hooks: `inherited` without what is the runner's own, and the run's variables.
///
/// # Errors
/// When a variable's value is no plain one.
pub fn environment(
    job: &Job,
    folders: &Folders,
    plugin_cache: Option<&Path>,
    interactive: bool,
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<OsString, OsString>, Error> {
    let mut env: BTreeMap<OsString, OsString> = inherited
        .into_iter()
        .filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"KNOLL_"))
        .filter(|(name, _)| !(job.managed_state && name == "TF_WORKSPACE"))
        .collect();
    let settings = env.get(OsStr::new("TF_CLI_CONFIG_FILE")).is_some_and(|file| Path::new(file).is_file());
    let home = env.get(OsStr::new("HOME")).map(PathBuf::from);
    let own = [".terraformrc", ".tofurc"];
    let at_home = home.is_some_and(|home| own.iter().any(|name| home.join(name).is_file()));
    // The image's own settings stay in force, so that its mirrors can be used.
    if !settings && at_home {
        env.remove(OsStr::new("TF_CLI_CONFIG_FILE"));
    } else if !settings {
        set(&mut env, "TF_CLI_CONFIG_FILE", folders.settings());
    }
    if let Some(cache) = plugin_cache {
        set(&mut env, "TF_PLUGIN_CACHE_DIR", cache);
    }
    // Without it, terraform tells the user which commands to run next, and asks the network for a newer version.
    set(&mut env, "TF_IN_AUTOMATION", "1");
    set(&mut env, "CHECKPOINT_DISABLE", "1");
    if !interactive {
        set(&mut env, "TF_INPUT", "0");
    }
    for variable in &job.variables {
        let JobVariable { key, value, env: is_env, expression, .. } = variable;
        if !is_env && !expression {
            continue;
        }
        let name = if *is_env { key.clone() } else { format!("TF_VAR_{key}") };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            Value::Null => continue,
            Value::Array(_) | Value::Object(_) if *is_env => {
                return Err(Error::Environment(key.clone()));
            }
            Value::Array(_) | Value::Object(_) => value.to_string(),
        };
        set(&mut env, name, text);
    }
    Ok(env)
}

fn set(env: &mut BTreeMap<OsString, OsString>, name: impl Into<OsString>, value: impl Into<OsString>) {
    env.insert(name.into(), value.into());
}
