//! Restores the state of one Workspace.

use anyhow::{Result, anyhow, bail};
use knoll_api::workspace::WorkspaceDeletionPolicy;
use knoll_api::{Stack, Workspace};
use knoll_backup::{Record, RecordName};
use knoll_storage::Owner;
use knoll_storage::states::{Refusal, RestoredState, Taken};
use kube::{Api, Resource};

use super::Restore;
use crate::connect::Explain;
use crate::output::time;
use crate::style;

impl Restore {
    /// Restores a state; `may_have_none` says whether the backups may have none of this Workspace.
    pub(super) async fn state(&mut self, namespace: &str, workspace: &str, may_have_none: bool) -> Result<()> {
        let versions = self.archive.versions(namespace, workspace).await?;
        let Some(name) = self.choose(&versions)? else {
            match may_have_none {
                true => return Ok(()),
                false => bail!("`{}` has no backup of its state", self.archive.shown()),
            }
        };
        let record = self.archive.record(namespace, workspace, name).await?;
        let content = self.archive.content(&record).await?;
        let known = self.known(namespace, workspace).await?;
        let owner = owner(workspace, known.as_ref());
        let Record { run, written_at, lock, .. } = record.clone();
        let state = RestoredState { content, run, written_at, lock };
        let states = self.session.storage().states();
        let restoration = match states.prepare_restore(namespace, owner, state, self.force).await {
            // The cluster has gone on since: with many states that is no failure.
            Err(knoll_storage::Error::Refused(Refusal::Serial { stored, new })) if may_have_none => {
                let kept = format!("workspace `{workspace}` in namespace `{namespace}` keeps serial {stored}");
                style::hint_aside(&format!("{kept}: the newest backup has serial {new}"));
                return Ok(());
            }
            restoration => match restoration {
                Ok(restoration) => restoration,
                Err(error) => return Err(self.refused(namespace, workspace, error).await),
            },
        };
        let Record { serial, digest, resources, written_at, .. } = &record;
        if restoration.taken() == Taken::Known {
            return Ok(());
        }
        // Read after the head: a Run that begins from now on changes the head, and then nothing is written.
        if let Some(active) = self.known(namespace, workspace).await?.and_then(|known| known.status?.active) {
            bail!(
                "run `{active}` holds its lock; wait for the run, or cancel it with `knoll cancel {active} -n {namespace}`"
            );
        }
        let replaced = restoration.replaces().map(|version| format!(", in place of serial {}", version.serial));
        if !self.dry_run {
            self.create_namespace(namespace).await;
            states.restore(namespace, restoration).await.map_err(|error| match error {
                knoll_storage::Error::Busy => anyhow!("its state was changed meanwhile; try again"),
                error => error.into(),
            })?;
        }
        self.states += 1;
        self.say(&format!(
            "the state of workspace `{workspace}` in namespace `{namespace}`: serial {serial}, resources: {resources}, written at {}, {digest}{}",
            time::moment(*written_at),
            replaced.unwrap_or_default()
        ));
        Ok(())
    }

    /// Why a state was not restored, and what to do. A Stack that was created before the restore has a state of its own.
    async fn refused(&self, namespace: &str, workspace: &str, error: knoll_storage::Error) -> anyhow::Error {
        let stacks: Api<Stack> = Api::namespaced(self.session.cluster.client.clone(), namespace);
        let what_to_do = match stacks.get_opt(workspace).await {
            Ok(Some(stack)) if !stack.spec.suspend => format!(
                "stack `{workspace}` was in the cluster before its state. Suspend it with `knoll stack suspend {workspace} -n {namespace}`, see what it has created with `knoll state list -w {workspace} -n {namespace}`, and destroy that or move it; then `--force` puts the state of the backups in the place of the cluster's"
            ),
            _ => "`--force` puts the state of the backups in the place of the cluster's".to_owned(),
        };
        anyhow::Error::from(error).context(what_to_do)
    }

    fn choose<'a>(&self, versions: &'a [RecordName]) -> Result<Option<&'a RecordName>> {
        let Some(serial) = self.serial else { return Ok(versions.first()) };
        let found = versions.iter().find(|name| name.serial == serial);
        let known = || versions.iter().map(|name| name.serial.to_string()).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| anyhow!("there is no backup of serial {serial}; there are {}", known()))
    }

    async fn known(&self, namespace: &str, workspace: &str) -> Result<Option<Workspace>> {
        let api: Api<Workspace> = Api::namespaced(self.session.cluster.client.clone(), namespace);
        api.get_opt(workspace).await.explain(&self.session.cluster, "cannot read the workspace")
    }
}

fn owner(workspace: &str, known: Option<&Workspace>) -> Owner {
    let spec = known.map(|known| known.spec.clone()).unwrap_or_default();
    let delete = spec.deletion_policy == WorkspaceDeletionPolicy::Delete;
    Owner {
        workspace: workspace.to_owned(),
        reference: known.filter(|_| delete).and_then(|known| known.owner_ref(&())),
        keep: usize::try_from(spec.state_history).unwrap_or(usize::MAX),
        copied: None,
        is_held: false,
    }
}
