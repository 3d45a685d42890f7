//! Refuses a run before it is created, where it would change infrastructure that is managed elsewhere.

use std::path::Path;

use anyhow::{Result, bail};
use knoll_api::Stack;
use knoll_api::names::label;
use knoll_api::run::{Operation, RunSpec};
use knoll_api::workspace::{StateKind, Workspace};
use kube::ResourceExt;
use serde::Deserialize;

use crate::connect::Explain;
use crate::style;
use crate::workspace::Session;

/// Fails if the Workspace belongs to a Stack that the run would change, unless the user asks for it.
pub async fn of_stack(session: &Session, workspace: &Workspace, spec: &RunSpec) -> Result<()> {
    let changes = matches!(spec.operation, Operation::Apply | Operation::Destroy | Operation::Refresh);
    let Some(name) = workspace.labels().get(label::STACK).filter(|_| changes && !spec.override_stack) else {
        return Ok(());
    };
    let stack = session.api::<Stack>().get_opt(name).await;
    let stack = stack.explain(&session.cluster, &format!("cannot read stack `{name}`"))?;
    if stack.is_some_and(|stack| knoll_core::stack::is_owned(workspace, &stack)) {
        bail!(
            "workspace `{}` belongs to Stack `{name}`; `knoll stack apply {name}` applies the stack\n  \
             `knoll apply` and `knoll destroy` change its infrastructure from this directory with `--override-stack`",
            workspace.name_any()
        );
    }
    Ok(())
}

/// Fails if the state of the Workspace is empty, and the infrastructure of the directory may be in another state.
pub fn of_other_state(folder: &Path, workspace: &Workspace, spec: &RunSpec) -> Result<()> {
    let name = workspace.name_any();
    let writes = matches!(spec.operation, Operation::Apply | Operation::Refresh);
    if workspace.spec.state == StateKind::External
        && let Some(declared) = knoll_runner::kept_in_pod(folder)
    {
        if spec.operation == Operation::Plan {
            style::note(&format!(
                "this plan starts from an empty state: workspace `{name}` has an external state, and this module declares \
                 {declared}, so no state can be kept, and `knoll apply` will be refused"
            ));
        }
        if !writes {
            return Ok(());
        }
        bail!(
            "workspace `{name}` has an external state, and this module declares {declared}: the state would be lost with \
             the pod of the run\n  \
             declare a backend that stores the state elsewhere\n  \
             or let Knoll store it: `knoll workspace edit {name}`, with `state: managed`"
        );
    }
    let status = workspace.status.clone().unwrap_or_default();
    let is_empty = workspace.spec.state == StateKind::Managed && status.state.is_none() && status.active.is_none();
    let plans = spec.operation != Operation::Command || spec.command.as_deref() == Some("import");
    if !plans {
        return Ok(());
    }
    if !is_empty {
        if let Some(note) = unused_backend(folder, workspace) {
            style::note(&note);
        }
        return Ok(());
    }
    if let Some(backend) = knoll_runner::declared_backend(folder) {
        if backend == knoll_runner::LOCAL_BACKEND {
            bail!(
                "this module declares `{backend}`, and workspace `{name}` has no state yet: what is in that file would be \
                 created a second time\n  \
                 to move the state here: `terraform state pull > FILE`, then `knoll state push FILE`\n  \
                 if nothing exists yet: remove the block; Knoll stores the state\n  \
                 a file on a volume of the runs' pods, with an absolute `path`: `knoll workspace new NAME --external-state`"
            );
        }
        bail!(
            "this module declares `{backend}`, and workspace `{name}` has no state yet: everything in the state of that backend \
             would be created a second time\n  \
             to keep the backend: `knoll workspace new NAME --external-state`\n  \
             to move its state here: `terraform state pull > FILE`, then `knoll state push FILE`\n  \
             if nothing exists yet: remove the block"
        );
    }
    if let Some(file) = local_state(folder) {
        bail!(
            "this directory has a state with resources, `{file}`, and workspace `{name}` has no state yet: these \
             resources would be created a second time\n  \
             to move the state here: `knoll state push {file}`\n  \
             if it is no longer used: move the file away"
        );
    }
    Ok(())
}

/// What to say of a backend that the module declares beside a managed state. That state is the truth, so the run goes on.
fn unused_backend(folder: &Path, workspace: &Workspace) -> Option<String> {
    let backend = knoll_runner::declared_backend(folder).filter(|_| workspace.spec.state == StateKind::Managed)?;
    Some(format!(
        "`{backend}` of this module is not used: Knoll stores the state of workspace `{}`. Remove the block, or use a \
         workspace with `--external-state`.",
        workspace.name_any()
    ))
}

/// A state of terraform's local backend that has resources.
fn local_state(folder: &Path) -> Option<String> {
    let mut files = vec!["terraform.tfstate".to_owned()];
    let named = std::fs::read_dir(folder.join("terraform.tfstate.d")).into_iter().flatten().flatten();
    files.extend(named.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(format!("terraform.tfstate.d/{name}/terraform.tfstate"))
    }));
    files.sort();
    files.into_iter().find(|file| std::fs::read(folder.join(file)).is_ok_and(|content| has_resources(&content)))
}

fn has_resources(content: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct State {
        #[serde(default)]
        resources: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<State>(content).is_ok_and(|state| !state.resources.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_backend_beside_a_state_of_knoll_was_ignored_without_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let mut workspace = Workspace::new("net", Default::default());
        assert_eq!(unused_backend(folder.path(), &workspace), None);
        std::fs::write(folder.path().join("main.tf"), "terraform {\n  backend \"s3\" {}\n}\n").unwrap();
        let expect = "`backend \"s3\"` of this module is not used: Knoll stores the state of workspace `net`. Remove the block, \
                      or use a workspace with `--external-state`.";
        assert_eq!(unused_backend(folder.path(), &workspace).as_deref(), Some(expect));
        workspace.spec.state = StateKind::External;
        assert_eq!(unused_backend(folder.path(), &workspace), None);
    }

    #[test]
    fn states_with_resources_are_found_wherever_terraform_puts_them() {
        let rows = [
            ("terraform.tfstate", r#"{"resources": [{}]}"#, true),
            ("terraform.tfstate.d/prod/terraform.tfstate", r#"{"resources": [{}]}"#, true),
            ("terraform.tfstate", r#"{"resources": []}"#, false),
            ("terraform.tfstate", "not a state", false),
            ("other.tfstate", r#"{"resources": [{}]}"#, false),
        ];
        for (name, content, expect) in rows {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
            assert_eq!(local_state(folder.path()), expect.then(|| name.to_owned()), "{name} {content}");
        }
    }
}
