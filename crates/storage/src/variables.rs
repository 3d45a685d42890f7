//! Brings the variables of a run together, from wherever they are kept.
//!
//! Later ones win: the Workspace's, then `variablesFrom` in its order, then the Run's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, EnvVar, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::hooks::Hook;
use knoll_api::names;
use knoll_api::pod::PodSettings;
use knoll_api::run::{Run, RunApproval, RunSpec, RunStatus};
use knoll_api::source::LocalRef;
use knoll_api::variables::{
    KeyRef, KeysRef, StackOutputsRef, ValueFrom, Variable, VariableCategory, Variables, VariablesFrom,
};
use knoll_api::wire::{CliFragment, JobHook, JobRegistry, JobSsh, JobVariable, Stage};
use knoll_api::workspace::{StateKind, Workspace};
use knoll_core::frozen::JobInputs;
use knoll_core::policy::Supplied;
use knoll_core::steps;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::messages::json_fault;
use crate::seal::SealError;
use crate::states::StateFile;
use crate::{ContentKind, Storage};

/// Why a variable has no value.
#[derive(Debug, thiserror::Error)]
pub enum VariablesError {
    /// An object that is referred to is not there.
    #[error("the {kind} `{name}` that {what} refers to does not exist; create it, or correct the reference")]
    Object {
        /// `Secret`, `ConfigMap`, `state of the Stack`.
        kind: &'static str,
        name: String,
        /// What refers to it.
        what: String,
    },
    /// A key that is referred to is not there.
    #[error("the {kind} `{name}` has no `{key}`, to which {what} refers; add it, or correct the reference")]
    Key {
        /// `Secret`, `ConfigMap`, `state of the Stack`.
        kind: &'static str,
        name: String,
        key: String,
        /// What refers to it.
        what: String,
    },
    /// A value is no text.
    #[error("the key `{key}` of the {kind} `{name}` is not text, so it cannot be a variable")]
    Text {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        name: String,
        key: String,
    },
    /// A variable has neither a value nor a reference.
    #[error("{0} has neither a value nor a reference to one; set one of them")]
    Nothing(String),
    /// A stored state cannot be read.
    #[error("the outputs of the Stack `{0}` cannot be read: {1}")]
    State(String, String),
    /// The variables that a Stack has kept cannot be read.
    #[error(
        "the variables that the Stack has kept in the Secret `{0}` cannot be read: {why}; ask the Stack for another run",
        why = json_fault(.1)
    )]
    Unreadable(String, serde_json::Error),
    #[error("the variables in the Secret `{0}` cannot be opened: {1}")]
    Sealed(String, SealError),
    #[error("another Secret has the name `{0}`, which the variables of a Stack need; delete it")]
    Taken(String),
    #[error("the Kubernetes API failed: {}", crate::message_of(.0))]
    Api(#[from] kube::Error),
}

/// The resolved variables of the revisions of Stacks, an immutable Secret each.
pub struct StoredVariables {
    storage: Storage,
}

impl StoredVariables {
    pub(crate) fn new(storage: Storage) -> Self {
        StoredVariables { storage }
    }

    /// Stores variables under a name that is made of their content; `metadata` has that name. A Secret of that name with
    /// other content is somebody else's.
    ///
    /// # Errors
    /// When they cannot be stored.
    pub async fn put(&self, namespace: &str, metadata: ObjectMeta, variables: &Resolved) -> Result<(), VariablesError> {
        let name = metadata.name.clone().unwrap_or_default();
        let content = serde_json::to_vec(variables).map_err(|error| VariablesError::Unreadable(name.clone(), error))?;
        let sealer = self.storage.sealer(ContentKind::Variables, namespace, &name);
        let content = sealer.seal(content).map_err(|error| VariablesError::Sealed(name, error))?;
        let secret = Secret {
            metadata,
            type_: Some(names::secret_type::VARIABLES.to_owned()),
            immutable: Some(true),
            data: Some(BTreeMap::from([(names::VARIABLES_KEY.to_owned(), ByteString(content))])),
            ..Secret::default()
        };
        match self.api(namespace).create(&PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let name = secret.metadata.name.unwrap_or_default();
                let found = self.get(namespace, &name).await.ok().and_then(|found| serde_json::to_value(found).ok());
                if found.is_some() && found == serde_json::to_value(variables).ok() {
                    return Ok(());
                }
                Err(VariablesError::Taken(name))
            }
            created => Ok(created.map(drop)?),
        }
    }

    /// The variables that were stored under that name.
    ///
    /// # Errors
    /// When they are not there or cannot be read.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Resolved, VariablesError> {
        let (kind, what) = (Kind::Secret.name(), "`snapshot`".to_owned());
        // A run may name any Secret; only one that a Stack has written for its runs is a snapshot.
        let is_snapshot = |secret: &Secret| secret.type_.as_deref() == Some(names::secret_type::VARIABLES);
        let Some(secret) = self.api(namespace).get_opt(name).await?.filter(is_snapshot) else {
            return Err(VariablesError::Object { kind, name: name.to_owned(), what });
        };
        let Some(content) = secret.data.and_then(|mut data| data.remove(names::VARIABLES_KEY)) else {
            let key = names::VARIABLES_KEY.to_owned();
            return Err(VariablesError::Key { kind, name: name.to_owned(), key, what });
        };
        let sealer = self.storage.sealer(ContentKind::Variables, namespace, name);
        let content = sealer.open(content.0).map_err(|error| VariablesError::Sealed(name.to_owned(), error))?;
        serde_json::from_slice(&content).map_err(|error| VariablesError::Unreadable(name.to_owned(), error))
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.storage.client().clone(), namespace)
    }
}

/// Where variables come from, later ones winning.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Those of the Workspace.
    pub workspace: &'a [Variable],
    pub from: &'a [VariablesFrom],
    pub values: &'a Variables,
}

/// All that terraform is given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Resolved {
    /// One value a name.
    pub variables: Vec<JobVariable>,
    /// Variable files by name.
    pub files: BTreeMap<String, String>,
    /// The names of those files that came from a Secret.
    pub sensitive_files: BTreeSet<String>,
}

/// Looks things up, each object once.
pub struct Lookup<'a> {
    storage: &'a Storage,
    namespace: &'a str,
    secrets: HashMap<String, Option<Texts>>,
    config_maps: HashMap<String, Option<Texts>>,
}

/// The keys of an object; those that are no text have none.
type Texts = BTreeMap<String, Option<String>>;

#[derive(Clone, Copy)]
enum Kind {
    Secret,
    ConfigMap,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
        }
    }
}

impl<'a> Lookup<'a> {
    pub fn new(storage: &'a Storage, namespace: &'a str) -> Self {
        Lookup { storage, namespace, secrets: HashMap::new(), config_maps: HashMap::new() }
    }

    /// Resolves all variables of a run. A run with a snapshot has those of the snapshot and its own. What Policies supply
    /// comes before all of them.
    ///
    /// # Errors
    /// When something that is referred to is not there.
    async fn resolve(
        &mut self,
        run: &Run,
        workspace: &Workspace,
        supplied: &Supplied,
    ) -> Result<Resolved, VariablesError> {
        let mut defaults = Vec::new();
        for (policy, variable) in &supplied.variables {
            let what = format!("the variable `{}` of the Policy `{policy}`", variable.key);
            defaults.push(self.variable(variable, what).await?);
        }
        let mut all = match self.of_snapshot(run).await? {
            Some(mut all) => {
                all.variables.extend(plain(&run.spec.variables, false));
                all
            }
            None => {
                let (from, values) = (&run.spec.variables_from, &run.spec.variables);
                let given = Given { workspace: &workspace.spec.variables, from, values };
                self.resolve_given(&workspace.name_any(), given).await?
            }
        };
        defaults.append(&mut all.variables);
        all.variables = last_wins(defaults);
        Ok(all)
    }

    /// Resolves variables of the Workspace `name`, from wherever they are given.
    ///
    /// # Errors
    /// When something that is referred to is not there.
    pub async fn resolve_given(&mut self, name: &str, given: Given<'_>) -> Result<Resolved, VariablesError> {
        let Given { workspace, from, values } = given;
        let mut all = Resolved::default();
        for variable in workspace {
            let what = format!("the variable `{}` of the Workspace `{name}`", variable.key);
            all.variables.push(self.variable(variable, what).await?);
        }
        for from in from {
            self.many(from, &mut all).await?;
        }
        all.variables.extend(plain(values, false));
        all.variables = last_wins(all.variables);
        Ok(all)
    }

    async fn variable(&mut self, variable: &Variable, what: String) -> Result<JobVariable, VariablesError> {
        let (value, secret) = match (&variable.value, &variable.value_from) {
            (Some(value), _) => (value.clone(), false),
            (None, Some(from)) => self.value_from(from, &what).await?,
            (None, None) => return Err(VariablesError::Nothing(what)),
        };
        Ok(JobVariable {
            key: variable.key.clone(),
            value: Value::String(value),
            env: variable.category == VariableCategory::Env,
            sensitive: variable.sensitive || secret,
            expression: true,
        })
    }

    /// The variables of the snapshot that a Stack has given the run.
    async fn of_snapshot(&self, run: &Run) -> Result<Option<Resolved>, VariablesError> {
        match &run.spec.snapshot {
            Some(snapshot) => self.storage.variables().get(self.namespace, &snapshot.variables).await.map(Some),
            None => Ok(None),
        }
    }

    /// What the runner of a run is given from its Workspace, from ConfigMaps and from Secrets, as those are now. Its pods
    /// have these `settings`, and Policies have `supplied` the rest.
    ///
    /// # Errors
    /// When something that is referred to is not there.
    pub async fn inputs(
        &mut self,
        run: &Run,
        workspace: &Workspace,
        settings: &PodSettings,
        supplied: &Supplied,
    ) -> Result<JobInputs, VariablesError> {
        let Resolved { variables, files, sensitive_files } = self.resolve(run, workspace, supplied).await?;
        let (hooks, mut masked) = self.hooks(&run.spec).await?;
        masked.extend(self.secrets_of(settings).await?);
        let registry = self.registry(supplied).await?;
        let timeouts = steps::in_seconds(&steps::timeouts_in_force(run, workspace));
        Ok(JobInputs {
            tool: workspace.spec.tool,
            version: workspace.spec.version.clone(),
            managed_state: workspace.spec.state == StateKind::Managed,
            terraform_workspace: Some(workspace.spec.terraform_workspace(&workspace.name_any())),
            variables,
            variable_files: files,
            sensitive_files: sensitive_files.into_iter().collect(),
            masked,
            hooks,
            timeouts,
            registry,
        })
    }

    /// How terraform gets providers and modules, from the Secrets and ConfigMaps that Policies name.
    async fn registry(&mut self, supplied: &Supplied) -> Result<JobRegistry, VariablesError> {
        let mut registry = JobRegistry::default();
        for (policy, source) in &supplied.terraformrc {
            let what = format!("`defaults.registry.terraformrc` of the Policy `{policy}`");
            let (text, sensitive) = match (&source.value, &source.value_from) {
                (Some(text), _) => (text.clone(), false),
                (None, Some(from)) => self.value_from(from, &what).await?,
                (None, None) => return Err(VariablesError::Nothing(what)),
            };
            registry.terraformrc.push(CliFragment { from: policy.clone(), text, sensitive });
        }
        if let Some((policy, key)) = &supplied.netrc {
            let what = format!("`defaults.registry.netrc` of the Policy `{policy}`");
            registry.netrc = Some(self.key(Kind::Secret, key, &what).await?);
        }
        if let Some((policy, LocalRef { name })) = &supplied.ssh {
            let what = format!("`defaults.registry.ssh` of the Policy `{policy}`");
            let texts = self.object(Kind::Secret, name, &what).await?;
            let text = |key: &str| texts.get(key).cloned().flatten();
            let missing = |key: &str| VariablesError::Key {
                kind: Kind::Secret.name(),
                name: name.clone(),
                key: key.to_owned(),
                what: what.clone(),
            };
            let identity = text("identity").or_else(|| text("ssh-privatekey")).ok_or_else(|| missing("identity"))?;
            let known_hosts = text("known_hosts").ok_or_else(|| missing("known_hosts"))?;
            registry.ssh = Some(JobSsh { identity, known_hosts });
        }
        Ok(registry)
    }

    /// The hooks of the run's steps with their scripts, and what their environment has from Secrets.
    async fn hooks(&mut self, spec: &RunSpec) -> Result<(Vec<JobHook>, Vec<String>), VariablesError> {
        // All steps that the run may have, whatever approval comes to hold.
        let any = RunStatus { approval: Some(RunApproval::Auto), ..RunStatus::default() };
        let of = steps::of_stage(spec, &any, Stage::Whole);
        let (mut hooks, mut masked) = (Vec::new(), Vec::new());
        for hook in spec.hooks.iter().filter(|hook| of.contains(&hook.step.into())) {
            let Hook { name, step, script, config_map, timeout, on_failure, .. } = hook.clone();
            let what = format!("the hook `{name}`");
            let script = match (script, config_map) {
                (Some(script), _) => script,
                (None, Some(key)) => self.config_map_key(&key, &what).await?,
                (None, None) => return Err(VariablesError::Nothing(what)),
            };
            let mut env = BTreeMap::new();
            for variable in &hook.env {
                let (value, secret) = self.env(variable, &what).await?;
                masked.extend(secret.then(|| value.clone()));
                env.insert(variable.name.clone(), value);
            }
            hooks.push(JobHook {
                container: knoll_core::pod::hook_container(hook),
                name,
                step: step.into(),
                script,
                env,
                timeout_seconds: timeout.map(|timeout| timeout.get().as_secs().max(1)),
                on_failure,
            });
        }
        Ok((hooks, masked))
    }

    /// The value of a hook's environment variable, with whether it came from a Secret.
    ///
    /// # Errors
    /// When it is not there.
    async fn env(&mut self, env: &EnvVar, what: &str) -> Result<(String, bool), VariablesError> {
        if let Some(value) = &env.value {
            return Ok((value.clone(), false));
        }
        let what = format!("the environment variable `{}` of {what}", env.name);
        let from = env.value_from.as_ref().ok_or_else(|| VariablesError::Nothing(what.clone()))?;
        let (kind, name, key, optional) = match (&from.secret_key_ref, &from.config_map_key_ref) {
            (Some(secret), _) => (Kind::Secret, &secret.name, &secret.key, secret.optional),
            (None, Some(map)) => (Kind::ConfigMap, &map.name, &map.key, map.optional),
            (None, None) => return Err(VariablesError::Nothing(what)),
        };
        let key = KeyRef { name: name.clone(), key: key.clone() };
        match self.key(kind, &key, &what).await {
            Err(VariablesError::Object { .. } | VariablesError::Key { .. }) if optional == Some(true) => {
                Ok((String::new(), false))
            }
            found => Ok((found?, matches!(kind, Kind::Secret))),
        }
    }

    /// The values that a pod has in its environment from Secrets. What is not there is none: the pod has started without.
    async fn secrets_of(&mut self, settings: &PodSettings) -> Result<Vec<String>, VariablesError> {
        let keys = settings.env.iter().filter_map(|env| env.value_from.as_ref()?.secret_key_ref.as_ref());
        let mut found = Vec::new();
        for key in keys {
            let texts = self.optional(Kind::Secret, &key.name).await?;
            found.extend(texts.and_then(|texts| texts.get(&key.key).cloned().flatten()));
        }
        for from in settings.env_from.iter().filter_map(|from| from.secret_ref.as_ref()) {
            let texts = self.optional(Kind::Secret, &from.name).await?;
            found.extend(texts.into_iter().flat_map(BTreeMap::values).flatten().cloned());
        }
        Ok(found)
    }

    async fn optional(&mut self, kind: Kind, name: &str) -> Result<Option<&Texts>, VariablesError> {
        match self.object(kind, name, "the environment").await {
            Ok(texts) => Ok(Some(texts)),
            Err(VariablesError::Object { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn config_map_key(&mut self, key: &KeyRef, what: &str) -> Result<String, VariablesError> {
        self.key(Kind::ConfigMap, key, what).await
    }

    /// A key of a Secret or of a ConfigMap, and whether it is sensitive.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn value_from(&mut self, from: &ValueFrom, what: &str) -> Result<(String, bool), VariablesError> {
        match (&from.secret_key_ref, &from.config_map_key_ref) {
            (Some(key), _) => Ok((self.key(Kind::Secret, key, what).await?, true)),
            (None, Some(key)) => Ok((self.key(Kind::ConfigMap, key, what).await?, false)),
            (None, None) => Err(VariablesError::Nothing(what.to_owned())),
        }
    }

    async fn many(&mut self, from: &VariablesFrom, all: &mut Resolved) -> Result<(), VariablesError> {
        if let Some(keys) = &from.secret_ref {
            self.keys(Kind::Secret, keys, all).await?;
        }
        if let Some(keys) = &from.config_map_ref {
            self.keys(Kind::ConfigMap, keys, all).await?;
        }
        if let Some(stack) = &from.stack_ref {
            all.variables.extend(self.outputs(stack, "`variablesFrom`").await?);
        }
        Ok(())
    }

    async fn keys(&mut self, kind: Kind, keys: &KeysRef, all: &mut Resolved) -> Result<(), VariablesError> {
        let what = "`variablesFrom`";
        let name = &keys.name;
        let texts = match self.object(kind, name, what).await {
            Err(VariablesError::Object { .. }) if keys.optional => return Ok(()),
            texts => texts?.clone(),
        };
        if !keys.optional
            && let Some(key) = keys.keys.iter().find(|key| !texts.contains_key(*key))
        {
            let (name, key) = (name.clone(), key.clone());
            return Err(VariablesError::Key { kind: kind.name(), name, key, what: what.to_owned() });
        }
        for (key, text) in texts {
            if !keys.keys.is_empty() && !keys.keys.contains(&key) {
                continue;
            }
            let text =
                text.ok_or_else(|| VariablesError::Text { kind: kind.name(), name: name.clone(), key: key.clone() })?;
            if key.ends_with(".tfvars") || key.ends_with(".tfvars.json") {
                if matches!(kind, Kind::Secret) {
                    all.sensitive_files.insert(key.clone());
                }
                all.files.insert(key, text);
            } else {
                let sensitive = matches!(kind, Kind::Secret);
                let value = Value::String(text);
                all.variables.push(JobVariable { key, value, env: false, sensitive, expression: true });
            }
        }
        Ok(())
    }

    /// One output of a Stack, with its type, and whether it is sensitive.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn output(&self, stack: &str, output: &str, what: &str) -> Result<(Value, bool), VariablesError> {
        let outputs = [(output.to_owned(), output.to_owned())].into();
        let wanted = StackOutputsRef { name: stack.to_owned(), outputs };
        let found = self.outputs(&wanted, what).await?;
        Ok(found.into_iter().next().map(|found| (found.value, found.sensitive)).unwrap_or_default())
    }

    /// The outputs of another Stack, the sensitive ones too: they stay sensitive.
    async fn outputs(&self, stack: &StackOutputsRef, what: &str) -> Result<Vec<JobVariable>, VariablesError> {
        const KIND: &str = "state of the Stack";
        let what = || what.to_owned();
        let failed = |error: &dyn std::fmt::Display| VariablesError::State(stack.name.clone(), error.to_string());
        let state = self.storage.states().read(self.namespace, &stack.name).await.map_err(|error| failed(&error))?;
        let state =
            state.ok_or_else(|| VariablesError::Object { kind: KIND, name: stack.name.clone(), what: what() })?;
        let mut outputs = StateFile::parse(&state).map_err(|error| failed(&error))?.outputs;
        let wanted: Vec<(String, String)> = match stack.outputs.is_empty() {
            true => outputs.keys().map(|name| (name.clone(), name.clone())).collect(),
            false => stack.outputs.clone().into_iter().collect(),
        };
        let mut variables = Vec::new();
        for (key, output) in wanted {
            let Some(found) = outputs.remove(&output) else {
                return Err(VariablesError::Key { kind: KIND, name: stack.name.clone(), key: output, what: what() });
            };
            outputs.insert(output, found.clone());
            let (value, sensitive) = (found.value, found.sensitive);
            variables.push(JobVariable { key, value, env: false, sensitive, expression: false });
        }
        Ok(variables)
    }

    async fn key(&mut self, kind: Kind, key: &KeyRef, what: &str) -> Result<String, VariablesError> {
        let KeyRef { name, key } = key;
        match self.object(kind, name, what).await?.get(key) {
            Some(Some(text)) => Ok(text.clone()),
            Some(None) => Err(VariablesError::Text { kind: kind.name(), name: name.clone(), key: key.clone() }),
            None => Err(VariablesError::Key {
                kind: kind.name(),
                name: name.clone(),
                key: key.clone(),
                what: what.to_owned(),
            }),
        }
    }

    async fn object(&mut self, kind: Kind, name: &str, what: &str) -> Result<&Texts, VariablesError> {
        let known = match kind {
            Kind::Secret => &mut self.secrets,
            Kind::ConfigMap => &mut self.config_maps,
        };
        if !known.contains_key(name) {
            let found = match kind {
                Kind::Secret => secret(self.storage.client(), self.namespace, name).await?,
                Kind::ConfigMap => config_map(self.storage.client(), self.namespace, name).await?,
            };
            known.insert(name.to_owned(), found);
        }
        known.get(name).and_then(Option::as_ref).ok_or_else(|| VariablesError::Object {
            kind: kind.name(),
            name: name.to_owned(),
            what: what.to_owned(),
        })
    }
}

async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Option<Texts>, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await?;
    Ok(found.map(|secret| {
        let data = secret.data.unwrap_or_default();
        data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).ok())).collect()
    }))
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> Result<Option<Texts>, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await?;
    Ok(found.map(|map| {
        let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, Some(value)));
        text.chain(map.binary_data.unwrap_or_default().into_keys().map(|key| (key, None))).collect()
    }))
}

fn plain(variables: &Variables, sensitive: bool) -> impl Iterator<Item = JobVariable> + '_ {
    variables.iter().map(move |(key, value)| JobVariable {
        key: key.clone(),
        value: value.clone(),
        env: false,
        sensitive,
        expression: false,
    })
}

/// One variable a name: terraform would choose by where it found them, not by their order.
fn last_wins(variables: Vec<JobVariable>) -> Vec<JobVariable> {
    let mut by_name = BTreeMap::new();
    for variable in variables {
        by_name.insert((variable.env, variable.key.clone()), variable);
    }
    by_name.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_value_of_a_name_wins_but_not_over_the_environment() {
        let variable = |key: &str, value: Value, env: bool| JobVariable {
            key: key.into(),
            value,
            env,
            sensitive: false,
            expression: false,
        };
        let all = last_wins(vec![
            variable("a", json!(1), false),
            variable("a", json!("e"), true),
            variable("b", json!(2), false),
            variable("a", json!(3), false),
        ]);
        let shown: Vec<_> = all.iter().map(|v| (v.key.as_str(), v.env, v.value.clone())).collect();
        assert_eq!(shown, [("a", false, json!(3)), ("b", false, json!(2)), ("a", true, json!("e"))]);
    }
}
