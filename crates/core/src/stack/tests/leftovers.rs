//! What an earlier Workspace or Stack of the same name has left behind, and what a Stack leaves.

use super::{
    tables::{check, ready},
    *,
};

/// The Workspace of a person was deleted, as the message of the Stack advised. The Stack took over the state that was left, and
/// destroyed the resources in it.
#[test]
fn a_new_stack_destroyed_what_an_earlier_workspace_had_made() {
    let mut world = World::new(StackSpec::default());
    (world.state, world.exists) = (1, Some("theirs".to_owned()));
    world.settle();
    check(&world, "Waiting stuck | ");
    for part in [
        "The state of an earlier Workspace `net` exists",
        "resources: 1",
        "kubectl delete secret knoll-state-net -n ns",
    ] {
        assert!(world.message().contains(part), "{}", world.message());
    }
    // It can be deleted, and leaves the state alone.
    let mut deleted = world.clone();
    deleted.delete();
    assert!(deleted.gone && deleted.runs.is_empty() && deleted.exists.is_some());
    // A person hands the state over.
    let mut handed_over = workspace(&world.stack);
    handed_over.annotations_mut().clear();
    world.workspace = Some(handed_over);
    world.settle();
    check(&world, "Running working | apply(a) Pending");
    // A state without resources is in nobody's way, and neither is the Stack's own when its Workspace was deleted.
    let mut world = World::new(StackSpec::default());
    world.state = 1;
    world.settle().succeed();
    world.workspace = None;
    world.change("b");
    check(&world, "Running working | apply(a) Succeeded, apply(b) Pending");
}

#[test]
fn nobody_could_read_the_log_of_the_destroy_after_its_stack_was_deleted() {
    let mut world = ready(StackSpec::default());
    world.change("b").succeed();
    world.delete().end(RunPhase::Failed, reason::STEP_FAILED, false);
    world.later(600).succeed();
    assert!(world.gone && world.cleaned);
    let left: Vec<(String, Option<u64>)> = world
        .runs
        .iter()
        .map(|run| (run.name_any(), run.spec.ttl_after_finished.as_ref().map(|ttl| ttl.get().as_secs())))
        .collect();
    let kept = Some(3 * 24 * 3600);
    assert_eq!(left, [("net-3-destroy".to_owned(), kept), ("net-4-destroy".to_owned(), kept)]);
}
