//! Prepares the working directory for terraform: module, variables, state and settings.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use knoll_api::wire::{Job, JobVariable};
use serde_json::{Map, Value, json};

use crate::registry::{CLI_CONFIG, RegistryFiles};
use crate::{backend, flags, tool};

/// File names that a user's module cannot use, because the runner writes files with these names.
const OURS: [&str; 2] = ["knoll_override.tf.json", "knoll_version.tf.json"];
/// Terraform reads `*.auto.tfvars` in the order of their names, and the last one wins. These names sort last.
const VARIABLES: &str = "zzzz-knoll";
/// The state file of a local backend without settings.
pub const STATE_FILE: &str = "terraform.tfstate";
const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Why the working directory cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The bundle is invalid.
    #[error(transparent)]
    Unpack(#[from] knoll_bundle::UnpackError),
    /// A user's file has a reserved name.
    #[error("the module contains a file `{0}`, which is a name reserved by Knoll; rename it")]
    Reserved(String),
    /// The module keeps its state elsewhere, and the Workspace has none yet.
    #[error(
        "the module declares `{backend}`, and Workspace `{workspace}` has no state of its own yet: a plan would create \
         everything a second time that the other state knows. To keep that backend, use a Workspace with `state: \
         external` (`knoll workspace new NAME --external-state`); to move the state here, save it with `terraform state \
         pull` and store it with `knoll state push FILE`; if nothing exists yet, remove the block"
    )]
    Backend { backend: String, workspace: String },
    /// A flag names a file that only the pod would have.
    #[error(
        "`-{0}` names a file that would be lost with the pod; leave the flag out: the state of the Workspace is used and \
         stored"
    )]
    FileInPod(String),
    /// A state that Knoll does not store would be a file of the pod.
    #[error(
        "Workspace `{workspace}` has `state: external`, and the module declares {declared}: the state would be lost with \
         the pod. Declare a backend that stores it elsewhere, or let Knoll store it with `state: managed` (`knoll workspace \
         edit {workspace}`)"
    )]
    StateInPod { declared: &'static str, workspace: String },
    /// A file of the run's input would lie outside of the module's files.
    #[error("the variable file `{0}` is outside of the module's files; use a path inside of them")]
    Outside(String),
    /// A variable file has an invalid name.
    #[error("`{0}` is not a valid name for a variable file; use a plain name that ends in `.tfvars` or `.tfvars.json`")]
    VariableFile(String),
    /// The value of an environment variable is not a scalar.
    #[error("the environment variable `{0}` must be a string, a number or a boolean")]
    Environment(String),
    /// The plan that another pod has stored.
    #[error("the stored plan is not one that terraform or tofu made, so it cannot be described; run it again")]
    Plan,
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read `{}`, which the settings of a Policy are joined with: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A CLI configuration cannot be joined with others.
    #[error(
        "{0} is not a CLI configuration that can be joined with others; correct it, or set `TF_CLI_CONFIG_FILE` in the \
         Workspace to use one file alone"
    )]
    CliConfig(String),
}

/// The layout of the run's working directory.
#[derive(Clone, Debug)]
pub struct Folders {
    root: PathBuf,
    /// The name of the terraform workspace.
    workspace: String,
}

/// Terraform's name of the workspace that a state belongs to if it belongs to no other.
pub const DEFAULT_WORKSPACE: &str = "default";

impl Folders {
    /// A layout below `root`, which need not exist.
    pub fn new(root: &Path, job: &Job) -> Self {
        let workspace = job.terraform_workspace.clone().unwrap_or_else(|| DEFAULT_WORKSPACE.to_owned());
        Folders { root: root.to_owned(), workspace }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that the bundle is unpacked to.
    pub fn bundle(&self) -> PathBuf {
        self.root.join("module")
    }

    /// The root module, in which terraform runs. The bundle names it, so this is valid after unpacking.
    pub fn module(&self) -> PathBuf {
        let bundle = self.bundle();
        let path = knoll_bundle::module_path(&bundle);
        if path.as_os_str().is_empty() { bundle } else { bundle.join(path) }
    }

    /// The directory of the states of terraform's local backend.
    fn states(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The state file of terraform's local backend. It has a directory of its own, by which terraform knows that the
    /// workspace exists.
    pub fn state(&self) -> PathBuf {
        self.state_folder().join(STATE_FILE)
    }

    /// The directory of the state file.
    pub fn state_folder(&self) -> PathBuf {
        self.states().join(&self.workspace)
    }

    /// The plan file. Terraform prints its name.
    pub fn plan(&self) -> PathBuf {
        self.root.join("plan")
    }

    /// The plan as JSON, for hooks.
    pub fn plan_json(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    pub fn lock_file(&self) -> PathBuf {
        self.module().join(LOCK_FILE)
    }

    pub fn hooks(&self) -> PathBuf {
        self.root.join("hooks")
    }

    /// The standard input of a command that has no terminal.
    pub fn stdin(&self) -> PathBuf {
        self.root.join("stdin")
    }

    /// The files of registries.
    pub(crate) fn registry(&self) -> RegistryFiles {
        RegistryFiles::below(&self.root)
    }
}

/// The downloads from the hub.
pub struct Material {
    /// The module's files. None for a command without a module.
    pub bundle: Option<bytes::Bytes>,
    /// The current state, if there is one.
    pub state: Option<bytes::Bytes>,
    /// The plan to apply, if an earlier pod made it.
    pub plan: Option<bytes::Bytes>,
}

/// Writes `material` and the job's variables to the working directory.
///
/// # Errors
/// If any of it is invalid; the message says what.
pub fn prepare(job: &Job, material: &Material, folders: &Folders) -> Result<(), SetupError> {
    let unpacked = folders.bundle();
    let state = folders.state();
    for folder in [&unpacked, &folders.states(), state.parent().unwrap_or(&folders.root), &folders.hooks()] {
        // A restarted container finds the files of the previous one.
        match fs::remove_dir_all(folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(SetupError::Write { path: folder.to_owned(), source });
            }
            _ => {}
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| SetupError::Write { path: folder.to_owned(), source })?;
    }
    if let Some(bundle) = &material.bundle {
        knoll_bundle::unpack(bundle, &unpacked, |name| !is_left_behind(name, job.managed_state))?;
    }
    write_input(job, folders)?;
    let module = folders.module();
    for name in OURS {
        if module.join(name).exists() {
            return Err(SetupError::Reserved(name.to_owned()));
        }
    }
    if let Some(flag) = flags::file_in_pod(&job.args).filter(|_| job.command.as_deref() != Some("sh")) {
        return Err(SetupError::FileInPod(flag.to_owned()));
    }
    if backend::starts_empty(job, material.state.is_some())
        && let Some(backend) = backend::declared(&module)
    {
        return Err(SetupError::Backend { backend, workspace: job.workspace.clone() });
    }
    if !job.managed_state
        && backend::writes(job)
        && let Some(declared) = backend::kept_in_pod(&module)
    {
        return Err(SetupError::StateInPod { declared, workspace: job.workspace.clone() });
    }
    if job.managed_state {
        // The path is relative, so that a plan is valid in another pod with other directories.
        let depth = module.strip_prefix(&unpacked).map_or(0, |path| path.components().count());
        let states = format!("{}../state", "../".repeat(depth));
        // Terraform uses `path` for the workspace `default`, and `workspace_dir` for all others.
        let path = format!("{states}/{DEFAULT_WORKSPACE}/terraform.tfstate");
        let backend = json!({"terraform": {"backend": {"local": {"path": path, "workspace_dir": states}}}});
        write(&module.join(OURS[0]), backend.to_string().as_bytes())?;
        // `terraform state rm` and its like write their backups to the default directory of the workspace.
        let backups = module.join("terraform.tfstate.d").join(&folders.workspace);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&backups)
            .map_err(|source| SetupError::Write { path: backups, source })?;
        if let Some(content) = &material.state {
            write(&state, content)?;
        }
    }
    if let Some(version) = &job.version {
        // Terraform combines the constraints of several files, so the module's own constraint still applies.
        let version = json!({"terraform": {"required_version": tool::constraint(version)}});
        write(&module.join(OURS[1]), version.to_string().as_bytes())?;
    }
    // `init -upgrade` selects providers anew; the checksums of the stored lock file could refuse them.
    let upgrades = job.command.as_deref() == Some("init") && flags::upgrades(&job.args);
    if let Some(lock_file) = &job.lock_file
        && !upgrades
        && !folders.lock_file().exists()
    {
        write(&folders.lock_file(), lock_file.as_bytes())?;
    }
    if let Some(plan) = &material.plan {
        write(&folders.plan(), plan)?;
    }
    folders.registry().write(&job.registry)?;
    write_variables(job, &module)
}

/// Writes the files of the input to the places where they are in the user's directory, so that terraform finds them in
/// the same order as there.
fn write_input(job: &Job, folders: &Folders) -> Result<(), SetupError> {
    let Some(input) = &job.input else { return Ok(()) };
    let top = folders.bundle();
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| SetupError::Write { path, source }
    };
    let real = top.canonicalize().map_err(failed(&top))?;
    for (name, content) in &input.files {
        let outside = || SetupError::Outside(name.clone());
        let path = top.join(knoll_bundle::inside(Path::new(name)).ok_or_else(outside)?);
        let folder = path.parent().filter(|folder| folder.starts_with(&top)).ok_or_else(outside)?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
        // A symlink of the bundle could lead elsewhere.
        if !folder.canonicalize().is_ok_and(|folder| folder.starts_with(&real)) || path.is_symlink() {
            return Err(outside());
        }
        write(&path, &content.0)?;
    }
    match &input.stdin {
        Some(stdin) => write(&folders.stdin(), &stdin.0),
        None => Ok(()),
    }
}

/// Whether a file of the module has a block for the encryption of the state, which only tofu knows.
pub fn names_encryption(module: &Path) -> bool {
    let files = fs::read_dir(module).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_code = |file: &PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        [".tf", ".tofu", ".tf.json", ".tofu.json"].iter().any(|ending| name.ends_with(ending))
    };
    files.filter(is_code).any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("encryption")))
}

/// Whether a file is a leftover of running terraform in the user's working copy, which must not be mistaken for the
/// run's own.
fn is_left_behind(name: &Path, managed_state: bool) -> bool {
    let first = name.iter().next().and_then(OsStr::to_str).unwrap_or_default();
    let state = matches!(first, "terraform.tfstate" | "terraform.tfstate.backup" | "terraform.tfstate.d");
    // The root module may be in any folder of the bundle.
    name.iter().any(|part| part == ".terraform") || (managed_state && state)
}

fn write_variables(job: &Job, module: &Path) -> Result<(), SetupError> {
    for (order, (name, content)) in job.variable_files.iter().enumerate() {
        let bad = || SetupError::VariableFile(name.clone());
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
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), SetupError> {
    let failed = |source| SetupError::Write { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(content).map_err(failed)
}

/// The environment of terraform and of hooks: `inherited` without the runner's own variables, plus the run's variables.
///
/// # Errors
/// If the value of a variable is not a scalar.
pub fn environment(
    job: &Job,
    folders: &Folders,
    plugin_cache: Option<&Path>,
    interactive: bool,
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<OsString, OsString>, SetupError> {
    let mut env: BTreeMap<OsString, OsString> = inherited
        .into_iter()
        .filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"KNOLL_"))
        .filter(|(name, _)| !(job.managed_state && name == "TF_WORKSPACE"))
        .collect();
    let named = env.get(OsStr::new(CLI_CONFIG)).map(PathBuf::from).filter(|file| file.is_file());
    let home = env.get(OsStr::new("HOME")).map(PathBuf::from);
    let own = [".terraformrc", ".tofurc"];
    let at_home = home.and_then(|home| own.iter().map(|name| home.join(name)).find(|file| file.is_file()));
    // The image's own CLI configuration is kept, so that its mirrors work, unless a Policy names the only one.
    match (&named, &at_home) {
        _ if job.mirror.is_some() => set(&mut env, CLI_CONFIG, folders.registry().settings()),
        (Some(_), _) => {}
        (None, Some(_)) => drop(env.remove(OsStr::new(CLI_CONFIG))),
        (None, None) => set(&mut env, CLI_CONFIG, folders.registry().settings()),
    }
    folders.registry().configure(&job.registry, named.or(at_home).as_deref(), &mut env)?;
    if let Some(cache) = plugin_cache {
        set(&mut env, "TF_PLUGIN_CACHE_DIR", cache);
    }
    // Without it, terraform suggests commands to run next and checks for a newer version.
    set(&mut env, "TF_IN_AUTOMATION", "1");
    set(&mut env, "CHECKPOINT_DISABLE", "1");
    if !interactive {
        set(&mut env, "TF_INPUT", "0");
    }
    for (name, value) in job.input.iter().flat_map(|input| &input.env) {
        set(&mut env, name, value);
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
                return Err(SetupError::Environment(key.clone()));
            }
            Value::Array(_) | Value::Object(_) => value.to_string(),
        };
        set(&mut env, name, text);
    }
    if job.managed_state {
        set(&mut env, "TF_WORKSPACE", &folders.workspace);
    }
    Ok(env)
}

fn set(env: &mut BTreeMap<OsString, OsString>, name: impl Into<OsString>, value: impl Into<OsString>) {
    env.insert(name.into(), value.into());
}
