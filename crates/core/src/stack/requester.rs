//! Who asked for the newest revision of a Stack, as far as Kubernetes tells.
//!
//! *Guarantee.* A Run of a Stack names a user only if the revision came with a change of the spec by that user, and
//! nothing that somebody else has changed waited to be applied with it. A ConfigMap, a Secret or a branch that changes
//! has no name in Kubernetes, so the revision that follows from it has none either.

use knoll_api::stack::{RevisionRequest, Snapshot, Stack, StackStatus};

use super::requested_by;

/// Notes in the status who asked for the newest revision. A revision that is known already stays whose it is, unless
/// another user has changed the spec since, as settings of pods are no part of a revision.
pub(super) fn account(stack: &Stack, status: &mut StackStatus, newest: &Snapshot) {
    let generation = stack.metadata.generation.unwrap_or_default();
    let author = requested_by(stack);
    let by = match &status.requested {
        None => author,
        Some(known) if known.generation == generation && known.revision == newest.revision => return,
        // The spec is the same, so something that it refers to has changed.
        Some(known) if known.generation == generation => None,
        Some(known) => {
            let was_applied = status.revision.as_ref() == Some(&known.revision);
            let is_new = was_applied && known.revision != newest.revision;
            author.filter(|author| is_new || known.by.as_deref() == Some(*author))
        }
    };
    let (revision, by) = (newest.revision.clone(), by.map(str::to_owned));
    status.requested = Some(RevisionRequest { generation, revision, by });
}

/// The user who asked for this snapshot; `None` when that user is unknown, or when it is not the newest one.
pub(super) fn of<'a>(status: &'a StackStatus, snapshot: Option<&Snapshot>) -> Option<&'a str> {
    let requested = status.requested.as_ref()?;
    let is_it = snapshot.is_some_and(|snapshot| snapshot.revision == requested.revision);
    requested.by.as_deref().filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use knoll_api::{names::annotation, stack::StackSpec};
    use kube::ResourceExt;

    use super::*;
    use crate::stack::tests::{World, named, resolved, snapshot};

    /// What happens to a Stack: the revision that its inputs make, and what has changed in its spec.
    enum Change {
        /// A user changes the spec.
        Spec(&'static str, &'static str),
        /// Something changes that the spec refers to.
        Input(&'static str),
        /// The newest revision is applied.
        Applied,
    }
    use Change::{Applied, Input, Spec};

    #[track_caller]
    fn check(changes: &[Change], expect: Option<&str>) {
        let (mut stack, mut status) = (named("net"), StackStatus::default());
        let mut newest = snapshot("a");
        for change in changes {
            match change {
                Spec(by, revision) => {
                    stack.metadata.generation = stack.metadata.generation.map(|generation| generation + 1);
                    stack.annotations_mut().insert(annotation::REQUESTED_BY.to_owned(), (*by).to_owned());
                    newest = snapshot(revision);
                }
                Input(revision) => newest = snapshot(revision),
                Applied => status.set_applied(Some(newest.clone())),
            }
            account(&stack, &mut status, &newest);
            let once = status.clone();
            account(&stack, &mut status, &newest);
            assert_eq!(status, once, "the same facts give the same status");
        }
        assert_eq!(of(&status, Some(&newest)), expect);
        assert_eq!(of(&status, Some(&snapshot("an earlier one"))), None);
    }

    #[test]
    fn a_change_of_the_spec_has_the_name_of_its_author() {
        check(&[Spec("uma", "a")], Some("uma"));
        check(&[Spec("", "a")], None);
        check(&[Spec("uma", "a"), Applied, Spec("eve", "b")], Some("eve"));
        check(&[Spec("uma", "a"), Spec("uma", "b")], Some("uma"));
    }

    /// Eve changed a ConfigMap of Uma's Stack, and approved the Run of it: it named Uma.
    #[test]
    fn a_change_of_a_config_map_was_one_of_the_last_user_to_change_the_spec() {
        check(&[Spec("uma", "a"), Applied, Input("b")], None);
        check(&[Spec("uma", "a"), Applied, Input("b"), Applied, Spec("eve", "c")], Some("eve"));
    }

    #[test]
    fn what_several_have_changed_since_the_last_apply_has_no_name() {
        check(&[Spec("uma", "a"), Spec("eve", "b")], None);
        check(&[Spec("uma", "a"), Applied, Input("b"), Spec("uma", "c")], None);
        // Uma's change waits while the Stack is suspended, and Eve resumes it.
        check(&[Spec("eve", "a"), Applied, Spec("uma", "b"), Spec("eve", "b")], None);
        // Settings of pods make no revision.
        check(&[Spec("uma", "a"), Applied, Spec("eve", "a")], None);
    }

    #[test]
    fn the_runs_of_a_stack_name_who_asked_for_their_revision() {
        let mut world = World::new(StackSpec::default());
        world.stack.annotations_mut().insert(annotation::REQUESTED_BY.to_owned(), "uma".to_owned());
        world.settle();
        let requester = |world: &World| world.current().and_then(|run| run.spec.requested_by.clone());
        assert_eq!(requester(&world).as_deref(), Some("uma"));
        world.succeed();
        world.inputs = resolved("b");
        world.settle();
        assert_eq!(world.current().and_then(|run| run.spec.snapshot.clone()), Some(snapshot("b")));
        assert_eq!(requester(&world), None);
    }
}
