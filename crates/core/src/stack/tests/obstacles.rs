//! What a Stack says of the obstacles that its Runs meet, and what gets them out of the way.

use super::{
    tables::{check, on_failure, ready},
    *,
};

/// The pod of the current Run cannot start.
fn pulls_in_vain(world: &mut World) -> &mut World {
    let now = world.now();
    let run = world.runs.iter_mut().rev().find(|run| !phase(run).is_finished()).unwrap();
    let mut next = status::of(run);
    let cause = Cause::new(reason::IMAGE_PULL_BACK_OFF, "The image is missing.");
    status::enter(&mut next, &run.clone(), RunPhase::Starting, &cause, now);
    run.status = Some(next);
    world.settle()
}

#[test]
fn a_corrected_stack_waited_behind_a_run_in_image_pull_back_off() {
    let mut world = World::new(StackSpec::default());
    pulls_in_vain(world.settle());
    check(&world, "Waiting working | apply(a) Starting");
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap().clone();
    assert_eq!(ready.reason, reason::IMAGE_PULL_BACK_OFF);
    assert!(ready.message.contains("The image is missing. Or correct the Stack"), "{}", ready.message);
    let mut deleted = world.clone();
    world.change("b");
    check(&world, "Running working | apply(a) Discarded, apply(b) Pending");
    // Nothing was made, so nothing is left.
    deleted.delete();
    assert!(deleted.gone, "{}", deleted.shown());

    // Settings of the pods are no part of a revision.
    let mut world = ready_with_image(Some("bad"));
    pulls_in_vain(world.change("b"));
    check(&world, "Waiting working | apply(a) Succeeded, apply(b) Starting");
    world.stack.spec.workspace.image = Some("good".to_owned());
    world.settle();
    check(&world, "Running working | apply(a) Succeeded, apply(b) Discarded, apply(b) Pending");
}

fn ready_with_image(image: Option<&str>) -> World {
    let mut spec = StackSpec::default();
    spec.workspace.image = image.map(str::to_owned);
    ready(spec)
}

#[test]
fn a_destroy_in_image_pull_back_off_is_replaced_by_one_with_the_corrected_image() {
    let mut world = ready_with_image(Some("bad"));
    pulls_in_vain(world.delete());
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Starting");
    assert!(world.message().contains("knoll.dev/force-orphan=yes"), "{}", world.message());
    world.stack.spec.workspace.image = Some("good".to_owned());
    world.settle();
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Discarded, destroy(a) Pending");
}

#[test]
fn a_rollback_in_image_pull_back_off_gives_way_to_a_corrected_revision() {
    let mut world = ready(on_failure(OnFailure::Rollback));
    pulls_in_vain(world.change("b").fail());
    check(&world, "Waiting working | apply(a) Succeeded, apply(b) Failed, rollback(a) Starting");
    world.change("c");
    check(&world, "Running working | apply(a) Succeeded, apply(b) Failed, rollback(a) Discarded, apply(c) Pending");
}

#[test]
fn a_destroy_that_a_hook_refuses_says_how_to_go_on() {
    let mut world = ready(StackSpec::default());
    world.delete();
    let run = world.runs.last_mut().unwrap();
    let step = StepStatus { state: StepState::Failed, ..StepStatus::started(StepName::PostPlan, MicroTime(at(1)), 0) };
    run.status = Some(RunStatus { steps: vec![step], ..status::of(run) });
    let mut other = world.clone();
    world.end(RunPhase::Failed, reason::STEP_FAILED, false);
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Failed");
    for part in ["change the hook so that it allows the destroy, or remove it", "knoll.dev/force-orphan=yes", "-n ns"] {
        assert!(world.message().contains(part), "{part}: {}", world.message());
    }
    // The next attempt has the hooks of then.
    world.stack.spec.hooks = vec![knoll_api::hooks::Hook { name: "changed".to_owned(), ..Default::default() }];
    world.later(3600);
    assert_eq!(world.current().unwrap().spec.hooks, world.stack.spec.hooks);
    other.runs.last_mut().unwrap().status.as_mut().unwrap().steps[0].name = StepName::Plan;
    other.end(RunPhase::Failed, reason::STEP_FAILED, false);
    assert!(!other.message().contains("hook"), "{}", other.message());
}

#[test]
fn a_rollback_in_review_says_why_it_rolls_back() {
    let mut world = ready(on_failure(OnFailure::Rollback));
    world.change("b").fail().at_phase(RunPhase::Review);
    check(&world, "Review working | apply(a) Succeeded, apply(b) Failed, rollback(a) Review");
    let why = "It rolls back because: Run `net-2-b` ended as Failed: StepFailed in a test.";
    assert!(world.message().contains(why), "{}", world.message());
}

#[test]
fn a_variable_that_the_module_does_not_declare_is_a_warning() {
    let variables = [("size".to_owned(), 1.into()), ("sizee".to_owned(), 2.into())].into();
    let mut world = World::new(StackSpec { variables, ..StackSpec::default() });
    world.settle();
    let declares = |world: &mut World, undeclared: &[&str]| {
        let run = world.runs.last_mut().unwrap();
        let undeclared_variables = undeclared.iter().map(ToString::to_string).collect();
        run.status = Some(RunStatus { bundle: Some("b".to_owned()), undeclared_variables, ..status::of(run) });
    };
    let told = |world: &World| {
        let status = world.status();
        conditions::find(&status.conditions, condition::VARIABLES_UNDECLARED).map(|found| found.message.clone())
    };
    // A variable from elsewhere may be meant for other modules.
    declares(&mut world, &["region", "sizee"]);
    world.succeed();
    check(&world, "Ready ready | apply(a) Succeeded");
    let message =
        "The module does not declare these variables of spec.variables, so their values have no effect: `sizee`.";
    assert_eq!(told(&world).as_deref(), Some(message));
    let events = crate::events::of_stack(&StackStatus::default(), &world.status());
    assert!(events.iter().any(|event| event.warning && event.message == message), "{events:?}");
    world.change("b");
    declares(&mut world, &["region"]);
    world.succeed();
    assert_eq!(told(&world), None);
}
