//! What holds whatever happens, in whatever order, and wherever the operator is killed.

use knoll_api::stack::{DriftAction, DriftSpec, StackApproval};
use proptest::prelude::*;

use super::*;

/// Something that happens to a Stack.
#[derive(Clone, Debug)]
enum Event {
    Change(u8),
    Unresolved,
    Run(RunPhase, bool),
    Later(u16),
    Suspend(bool),
    /// The operator looks, and is killed after that many actions.
    Killed(usize),
    RunDeleted,
}

fn event() -> impl Strategy<Value = Event> {
    let phase = prop_oneof![
        Just(RunPhase::Queued),
        Just(RunPhase::Running),
        Just(RunPhase::Review),
        Just(RunPhase::Succeeded),
        Just(RunPhase::Succeeded),
        Just(RunPhase::Failed),
        Just(RunPhase::Cancelled),
        Just(RunPhase::Discarded),
    ];
    prop_oneof![
        3 => (0..4_u8).prop_map(Event::Change),
        1 => Just(Event::Unresolved),
        6 => (phase, any::<bool>()).prop_map(|(phase, applied)| Event::Run(phase, applied)),
        2 => (1..5000_u16).prop_map(Event::Later),
        1 => any::<bool>().prop_map(Event::Suspend),
        3 => (0..4_usize).prop_map(Event::Killed),
        1 => Just(Event::RunDeleted),
    ]
}

fn spec() -> impl Strategy<Value = StackSpec> {
    let on_failure = prop_oneof![Just(OnFailure::Hold), Just(OnFailure::Retry), Just(OnFailure::Rollback)];
    let approval = prop_oneof![Just(StackApproval::Auto), Just(StackApproval::Manual)];
    let action = prop_oneof![Just(DriftAction::Report), Just(DriftAction::Plan), Just(DriftAction::Apply)];
    (on_failure, approval, proptest::option::of(action)).prop_map(|(on_failure, approval, action)| StackSpec {
        on_failure,
        approval,
        drift: action.map(|action| DriftSpec { interval: "1h".parse().unwrap(), action, ignore: Vec::new() }),
        ..StackSpec::default()
    })
}

/// Lets something happen, and then the operator decide. Each transition that the machine or its Runs cause is one of
/// [`TRANSITIONS`].
fn happen(world: &mut World, event: &Event) -> Result<(), TestCaseError> {
    let mut before = world.state_name();
    match event {
        Event::Change(revision) => world.inputs = resolved(&revision.to_string()),
        Event::Unresolved => world.inputs = Inputs::Unresolved(Cause::new(reason::SOURCE_FAILED, "gone")),
        Event::Run(phase, applied) => {
            // A Run starts when the Stack's status names it, and not before (`core::run::before_pod`).
            let started = |run: &&Run| launched(Some(&world.stack), run) == Launched::Confirmed;
            let Some(run) = world.current().filter(started).map(ResourceExt::name_any) else { return Ok(()) };
            if phase.is_finished() {
                // A success that applied nothing is one without changes; one that applied has made what it says.
                let applied = *applied || *phase == RunPhase::Succeeded;
                world.finish(&run, *phase, phase.as_str(), applied);
            } else if let Some(run) = world.runs.iter_mut().find(|known| known.name_any() == run) {
                let mut next = status::of(run);
                let of = run.clone();
                status::enter(&mut next, &of, *phase, &Cause::new("Test", "moved"), at(world.second));
                run.status = Some(next);
            }
        }
        Event::Later(seconds) => world.second += i64::from(*seconds),
        Event::Suspend(suspend) => world.stack.spec.suspend = *suspend,
        Event::Killed(actions) => {
            world.step(*actions);
            return if world.gone { Ok(()) } else { check_transition(before, world.state_name()) };
        }
        Event::RunDeleted => {
            // The end of the Run is lost with it, so the Stack is where it was when the Run was unfinished.
            before = world.state_before_ends();
            world.runs.pop();
        }
    }
    let between = world.state_name();
    if matches!(event, Event::Run(..) | Event::Later(_) | Event::RunDeleted) {
        check_transition(before, between)?;
    }
    world.step(usize::MAX);
    if world.gone { Ok(()) } else { check_transition(between, world.state_name()) }
}

fn check_transition(from: StackStateName, to: StackStateName) -> Result<(), TestCaseError> {
    // What a Stack waits for becomes its state when its last Run has ended.
    let outside =
        matches!(to, StackStateName::Unresolved | StackStateName::Suspended | StackStateName::DestroySuspended);
    let in_table = TRANSITIONS.iter().any(|(of, next)| *of == from && next.contains(&to));
    prop_assert!(from == to || outside || in_table, "{from:?} -> {to:?} is not in the table");
    Ok(())
}

fn check(world: &World) -> Result<(), TestCaseError> {
    let mut unstarted: Vec<&Run> = world.runs.iter().filter(|run| !phase(run).is_finished()).collect();
    unstarted.retain(|run| matches!(phase(run), RunPhase::Pending | RunPhase::Queued | RunPhase::Review));
    prop_assert!(unstarted.len() <= 1, "{}", world.shown());
    if conditions::holds(&world.status().conditions, condition::READY) && !world.stack.spec.suspend {
        prop_assert_eq!(world.status().attempted, None, "half of a revision is never Ready");
        prop_assert_eq!(&world.status().revision, &world.exists, "{}", world.shown());
    }
    prop_assert!(!world.shown().contains("contradictory"), "{}", world.shown());
    if let Some(failure) = &world.status().failure {
        prop_assert_eq!(
            world.revisions.get(&failure.run),
            Some(&failure.revision),
            "a failure is of its Run's revision"
        );
    }
    Ok(())
}

/// Lets every Run succeed, and time pass, until nothing happens any more.
fn play_out(world: &mut World) {
    for _ in 0..30 {
        world.settle();
        if world.gone {
            return;
        }
        match world.current().map(ResourceExt::name_any) {
            Some(run) => world.finish(&run, RunPhase::Succeeded, reason::SUCCEEDED, true),
            None if world.requeue_at.is_some_and(|due| due < at(world.second + 601)) => world.second += 601,
            None => return,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_the_last_revision_is_applied_and_then_nothing_more(
        spec in spec(),
        events in prop::collection::vec(event(), 0..25),
    ) {
        let mut world = World::new(spec);
        for event in &events {
            happen(&mut world, event)?;
            check(&world)?;
        }
        world.stack.spec.suspend = false;
        world.inputs = resolved("last");
        play_out(&mut world);
        prop_assert_eq!(world.status().phase, StackPhase::Ready, "{}", world.shown());
        prop_assert_eq!(world.status().revision, Some("last".to_owned()));
        prop_assert_eq!(world.exists.as_deref(), Some("last"));
        let again = world.decide();
        prop_assert_eq!(again.next, Next::Status(world.status()));
    }

    #[test]
    fn nothing_is_let_go_of_while_something_exists(
        spec in spec(),
        before in prop::collection::vec(event(), 0..15),
        after in prop::collection::vec(event(), 0..15),
    ) {
        let mut world = World::new(spec);
        for event in &before {
            happen(&mut world, event)?;
        }
        world.stack.metadata.deletion_timestamp = Some(Time(world.now()));
        for event in &after {
            happen(&mut world, event)?;
            if world.gone {
                prop_assert_eq!(&world.exists, &None, "{}", world.shown());
                return Ok(());
            }
            prop_assert!(!world.cleaned || world.current().is_none(), "nothing starts after the end: {}", world.shown());
        }
        world.stack.spec.suspend = false;
        world.annotate(annotation::RECONCILE, "now");
        play_out(&mut world);
        let held = !world.stack.finalizers().is_empty();
        prop_assert!(world.gone || !held, "{}", world.shown());
        prop_assert!(world.exists.is_none(), "{}", world.shown());
    }
}

/// Once, the status that recorded the intent to apply a revision again was still Ready.
#[test]
fn a_stack_that_starts_a_run_is_not_ready_before_the_run_is_recorded() {
    let mut world = World::new(StackSpec::default());
    // Revision 1 is applied, and then one half of revision 0, whose launch was interrupted.
    let applied = [Event::Change(0), Event::Change(1), Event::RunDeleted, Event::Run(RunPhase::Succeeded, false)];
    let half = [Event::Change(0), Event::Killed(2), Event::Change(1), Event::Run(RunPhase::Failed, true)];
    for event in applied.iter().chain(&half) {
        happen(&mut world, event).unwrap();
        check(&world).unwrap();
    }
    assert_eq!(world.status().attempted.map(|half| half.revision).as_deref(), Some("0"));
}
