//! The picture in the module documentation is the table of transitions.

use super::*;

#[test]
fn the_module_documentation_shows_the_table() {
    let picture: Vec<String> = TRANSITIONS
        .iter()
        .map(|(from, next)| {
            let next: Vec<String> = next.iter().map(|name| format!("{name:?}")).collect();
            format!("//! {from:?} -> {}", next.join(" | "))
        })
        .collect();
    let source = include_str!("../mod.rs");
    let shown: Vec<&str> = source
        .lines()
        .skip_while(|line| *line != "//! ```text")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .collect();
    assert_eq!(shown, picture);
}

#[test]
fn each_state_of_the_table_is_reached() {
    let rows: &[(StackStateName, fn(&mut World))] = &[
        (StackStateName::Unclaimed, |_| {}),
        (StackStateName::Outdated, |world| drop(world.step(usize::MAX))),
        (StackStateName::Running, |world| {
            world.settle();
        }),
        (StackStateName::Applied, |world| {
            world.settle().succeed();
        }),
        (StackStateName::Held, |world| {
            world.settle().fail();
        }),
        (StackStateName::Suspended, |world| {
            world.stack.spec.suspend = true;
            world.settle();
        }),
        (StackStateName::Retrying, |world| {
            world.stack.spec.on_failure = OnFailure::Retry;
            world.settle().fail();
        }),
        (StackStateName::RollbackFailed, |world| {
            world.stack.spec.on_failure = OnFailure::Rollback;
            world.settle().fail();
        }),
        (StackStateName::RollingBack, |world| {
            world.stack.spec.on_failure = OnFailure::Rollback;
            world.settle().succeed().change("b").fail();
        }),
        (StackStateName::Reverted, |world| {
            world.stack.spec.on_failure = OnFailure::Rollback;
            world.settle().succeed().change("b").fail().succeed();
        }),
        (StackStateName::Released, |world| {
            world.delete();
        }),
        (StackStateName::Destroying, |world| {
            world.settle().succeed().delete();
        }),
        (StackStateName::Stopping, |world| {
            world.settle().at_phase(RunPhase::Running).delete();
        }),
        (StackStateName::DestroyRetrying, |world| {
            world.settle().succeed().delete().end(RunPhase::Failed, reason::STEP_FAILED, false);
        }),
        (StackStateName::DestroyHeld, |world| {
            world.settle().succeed().delete().end(RunPhase::Discarded, reason::DISCARDED, false);
        }),
    ];
    for (expect, live) in rows {
        let mut world = World::new(StackSpec::default());
        live(&mut world);
        assert_eq!(world.state_name(), *expect, "{}", world.shown());
    }
}
