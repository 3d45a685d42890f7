//! Every transition of the machine by table, and any sequence of events by property.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use knoll_api::{
    AtomSpec, AtomStatus,
    atom::{AtomCancel, AtomFailure, AtomJournal, AtomPhase, Cancellation, JournalStage, ObjectKey},
    names::{condition, finalizer, reason},
};
use proptest::{prelude::*, sample::select};

use super::*;
use crate::{
    conditions,
    machine::{Decision, Next},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

fn revision(template: &str, inputs: &str) -> AtomRevision {
    AtomRevision { template: template.to_owned(), inputs: inputs.to_owned(), ..AtomRevision::default() }
}

fn object(name: &str, ready: bool) -> AtomObject {
    let key = ObjectKey { kind: "ConfigMap".to_owned(), name: name.to_owned(), ..ObjectKey::default() };
    AtomObject { object: key, ready, message: (!ready).then(|| "Not yet.".to_owned()), ..AtomObject::default() }
}

/// An Atom that wants `v2` and has this status.
fn atom(status: AtomStatus) -> Atom {
    let mut atom = Atom::new("web", AtomSpec { version: "v2".to_owned(), ..AtomSpec::default() });
    atom.metadata.generation = Some(2);
    atom.metadata.finalizers = Some(vec![finalizer::ATOM.to_owned()]);
    atom.status = Some(status);
    atom
}

/// A status of this phase: `v1` was good, `v2` is tried since second 0.
fn status(phase: AtomPhase, stage: Option<JournalStage>) -> AtomStatus {
    AtomStatus {
        phase,
        target_version: Some("v2".to_owned()),
        last_good_version: Some("v1".to_owned()),
        started_at: Some(MicroTime(at(0))),
        journal: stage.map(|stage| AtomJournal { secret_name: "j".to_owned(), stage }),
        objects: vec![object("a", false)],
        tried: Some(revision("t2", "i")),
        good: Some(revision("t1", "i")),
        ..AtomStatus::default()
    }
}

/// A request to cancel the update to a version.
fn cancel(version: &str, rollback: bool) -> Option<AtomCancel> {
    Some(AtomCancel { version: version.to_owned(), rollback })
}

fn known(template: &str, inputs: &str) -> Desired {
    Desired::Revision(revision(template, inputs))
}

fn missing() -> Desired {
    Desired::Unresolved { cause: Cause::new(reason::VERSION_NOT_FOUND, "It is not there."), stalled: true }
}

/// The status that is decided, or the status as it is and the action.
fn decision(atom: &Atom, desired: &Desired, second: i64) -> (AtomStatus, Option<AtomAction>) {
    match decide(&AtomFacts { atom, desired }, at(second)).next {
        Next::Status(status) => (status, None),
        Next::Act(action) => (atom.status.clone().unwrap_or_default(), Some(action)),
    }
}

fn settled(atom: &Atom, outcome: AtomOutcome, second: i64) -> AtomStatus {
    settle(atom, outcome, at(second)).status
}

/// What is decided: the next phase and stage, and what to do when the status stays.
fn decided(atom: &Atom, desired: &Desired, second: i64) -> (AtomPhase, Option<JournalStage>, Option<AtomAction>) {
    let (status, action) = decision(atom, desired, second);
    (status.phase, status.journal.map(|journal| journal.stage), action)
}

#[test]
fn every_decision() {
    use {AtomAction as A, AtomPhase as P, JournalStage as S};
    let t2 = || known("t2", "i");
    let failed = |cancellation: Cancellation, from: AtomStatus| AtomStatus {
        failure: Some(AtomFailure { cancellation: Some(cancellation), ..AtomFailure::default() }),
        ..from
    };
    #[rustfmt::skip]
    let rows: Vec<(&str, AtomStatus, bool, Desired, i64, (P, Option<S>, Option<A>))> = vec![
        ("nothing is known yet", AtomStatus::default(), false, missing(), 1, (P::Pending, None, None)),
        ("a first version", AtomStatus::default(), false, t2(), 1, (P::Updating, None, None)),
        ("a first version, cancelled", AtomStatus::default(), true, t2(), 1, (P::Pending, None, None)),
        ("half of an update waits", status(P::Pending, Some(S::Kept)), false, missing(), 1, (P::Pending, Some(S::Kept), None)),
        ("half of an update waits too long", status(P::Pending, Some(S::Kept)), false, missing(), 400, (P::Rollback, Some(S::Restore), None)),
        ("half of an update is cancelled", status(P::Pending, Some(S::Kept)), true, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("half of an update goes on", status(P::Pending, Some(S::Kept)), false, t2(), 400, (P::Updating, Some(S::Kept), None)),
        ("checked first", status(P::Updating, None), false, t2(), 1, (P::Updating, None, Some(A::Prepare))),
        ("checked anew", status(P::Updating, Some(S::Kept)), false, t2(), 1, (P::Updating, Some(S::Kept), Some(A::Prepare))),
        ("written", status(P::Updating, Some(S::Apply)), false, t2(), 1, (P::Updating, Some(S::Apply), Some(A::Apply))),
        ("waited for", status(P::Updating, Some(S::Wait)), false, t2(), 1, (P::Updating, Some(S::Wait), Some(A::CheckReadiness))),
        ("pruned", status(P::Updating, Some(S::Prune)), false, t2(), 1, (P::Updating, Some(S::Prune), Some(A::Prune))),
        ("goes on while a dependency works", status(P::Updating, Some(S::Wait)), false, missing(), 1, (P::Updating, Some(S::Wait), Some(A::CheckReadiness))),
        ("too late", status(P::Updating, Some(S::Wait)), false, t2(), 300, (P::Deadline, Some(S::Wait), None)),
        ("too late to prune", status(P::Updating, Some(S::Prune)), false, t2(), 300, (P::Deadline, Some(S::Prune), None)),
        ("cancelled", status(P::Updating, Some(S::Wait)), true, t2(), 1, (P::Cancelled, Some(S::Wait), None)),
        ("a newer version", status(P::Updating, Some(S::Wait)), false, known("t3", "i"), 1, (P::Cancelled, Some(S::Wait), None)),
        ("newer inputs", status(P::Updating, Some(S::Wait)), false, known("t2", "j"), 1, (P::Cancelled, Some(S::Wait), None)),
        ("cancelled for a newer one", failed(Cancellation::Superseded, status(P::Cancelled, Some(S::Wait))), false, t2(), 1, (P::Pending, Some(S::Kept), None)),
        ("cancelled for good", failed(Cancellation::Requested, status(P::Cancelled, Some(S::Wait))), true, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("superseded and cancelled", failed(Cancellation::Superseded, status(P::Cancelled, Some(S::Wait))), true, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("an error", status(P::Error, Some(S::Apply)), false, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("an error before anything was kept", status(P::Error, None), false, t2(), 1, (P::Rollback, None, None)),
        ("a deadline", status(P::Deadline, Some(S::Wait)), false, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("nothing to undo", status(P::Rollback, None), false, t2(), 1, (P::Reverted, None, None)),
        ("undone", status(P::Rollback, Some(S::Restore)), false, t2(), 1, (P::Rollback, Some(S::Restore), Some(A::Restore))),
        ("undone, as the update was cancelled", status(P::Rollback, Some(S::Restore)), true, known("t3", "i"), 1, (P::Rollback, Some(S::Restore), Some(A::Restore))),
        ("not undone in time", status(P::Rollback, Some(S::Restore)), false, t2(), 300, (P::Failure, Some(S::Restore), None)),
        ("the journal is forgotten", status(P::Running, Some(S::Done)), false, known("t3", "i"), 1, (P::Running, Some(S::Done), Some(A::CleanUp))),
        ("it runs", status(P::Running, None), false, t2(), 1, (P::Running, None, None)),
        ("it runs while a dependency works", status(P::Running, None), false, missing(), 1, (P::Running, None, None)),
        ("a new version", status(P::Running, None), false, known("t3", "i"), 1, (P::Pending, None, None)),
        ("new inputs", status(P::Running, None), false, known("t2", "j"), 1, (P::Pending, None, None)),
        ("reverted", status(P::Reverted, None), false, t2(), 1, (P::Reverted, None, None)),
        ("reverted, and a new version", status(P::Reverted, None), false, known("t3", "i"), 1, (P::Pending, None, None)),
        ("failure", status(P::Failure, Some(S::Restore)), false, t2(), 1, (P::Failure, Some(S::Restore), None)),
        ("failure, and a new version", status(P::Failure, Some(S::Restore)), false, known("t3", "i"), 1, (P::Pending, Some(S::Kept), None)),
    ];
    for (what, status, cancelled, desired, second, expect) in rows {
        let mut atom = atom(status);
        atom.spec.cancel = cancelled.then(|| cancel("v2", false)).flatten();
        assert_eq!(decided(&atom, &desired, second), expect, "{what}");
        // A request for another version is none.
        if !cancelled {
            atom.spec.cancel = cancel("v1", true);
            assert_eq!(decided(&atom, &desired, second), expect, "{what}, and another version is cancelled");
        }
    }
}

#[test]
fn a_cancelled_rollback_is_a_failure_that_the_next_version_starts_from() {
    let mut one = atom(status(AtomPhase::Rollback, Some(JournalStage::Restore)));
    one.spec.cancel = cancel("v2", true);
    let (failed, action) = decision(&one, &known("t2", "i"), 1);
    assert_eq!((failed.phase, action), (AtomPhase::Failure, None));
    let told = conditions::find(&failed.conditions, condition::STALLED).map(|told| told.message.clone());
    let told = told.unwrap_or_default();
    assert!(told.starts_with("The rollback of version `v2` was cancelled. Not restored: `ConfigMap a`"), "{told}");
    one.status = Some(failed);
    assert_eq!(decided(&one, &known("t2", "i"), 2).0, AtomPhase::Failure, "it rests");
    // The request names `v2`, so nobody has to take it back for `v3`.
    one.spec.version = "v3".to_owned();
    for phase in [AtomPhase::Pending, AtomPhase::Updating] {
        let (next, _) = decision(&one, &known("t3", "i"), 3);
        assert_eq!((next.phase, next.journal.as_ref().map(|kept| kept.stage)), (phase, Some(JournalStage::Kept)));
        one.status = Some(next);
    }
    assert_eq!(decided(&one, &known("t3", "i"), 3).2, Some(AtomAction::Prepare));
    // An update that is cancelled with its rollback ends where it is.
    let mut two = atom(status(AtomPhase::Updating, Some(JournalStage::Wait)));
    two.spec.cancel = cancel("v2", true);
    for phase in [AtomPhase::Cancelled, AtomPhase::Rollback, AtomPhase::Failure] {
        let (next, _) = decision(&two, &known("t2", "i"), 1);
        assert_eq!(next.phase, phase);
        two.status = Some(next);
    }
}

#[test]
fn an_atom_is_held_until_its_objects_are_gone() {
    let mut one = atom(AtomStatus::default());
    one.metadata.finalizers = None;
    assert_eq!(decided(&one, &known("t2", "i"), 1).2, Some(AtomAction::AddFinalizer));
    let mut going = atom(status(AtomPhase::Updating, Some(JournalStage::Apply)));
    going.metadata.deletion_timestamp = Some(Time(at(1)));
    let (status, action) = decision(&going, &known("t2", "i"), 1);
    assert_eq!((action, status.phase), (None, AtomPhase::Updating));
    going.status = Some(status);
    assert_eq!(decided(&going, &known("t2", "i"), 1).2, Some(AtomAction::DeleteObjects));
    // What hinders it is told once, and not taken back before the next attempt.
    let refused = || AtomOutcome::Failed(ActionError::refused(reason::IMMUTABLE, "You may not."));
    going.status = Some(settled(&going, refused(), 1));
    let told = going.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    assert_eq!(told.map(|told| told.message.as_str()), Some("Deleting its objects. You may not."));
    let desired = known("t2", "i");
    assert_eq!(
        decision(&going, &desired, 2),
        (going.status.clone().unwrap_or_default(), Some(AtomAction::DeleteObjects))
    );
    assert_eq!(Some(settled(&going, refused(), 2)), going.status);
    going.status = Some(settled(&going, AtomOutcome::ObjectsDeleted(Vec::new()), 1));
    assert_eq!(decided(&going, &known("t2", "i"), 1).2, Some(AtomAction::RemoveFinalizer));
    going.metadata.finalizers = None;
    assert_eq!(decided(&going, &known("t2", "i"), 1).2, None);
}

#[test]
fn every_outcome() {
    use {AtomPhase as P, JournalStage as S};
    let prepared = || AtomOutcome::Prepared { secret_name: "k".to_owned(), objects: vec![object("b", false)] };
    let refused = || AtomOutcome::Failed(ActionError::refused(reason::IMMUTABLE, "No."));
    let seen = |ready| AtomOutcome::ReadinessChecked { objects: vec![object("a", ready)], failed: None };
    let lost =
        || AtomOutcome::ReadinessChecked { objects: vec![object("a", false)], failed: Some("It crashed.".to_owned()) };
    let restored = |ready| AtomOutcome::Restored(vec![object("a", ready)]);
    let rows: Vec<(AtomStatus, AtomOutcome, P, Option<S>)> = vec![
        (status(P::Updating, None), prepared(), P::Updating, Some(S::Apply)),
        (status(P::Updating, Some(S::Kept)), prepared(), P::Updating, Some(S::Apply)),
        (status(P::Updating, None), refused(), P::Error, None),
        (status(P::Updating, Some(S::Apply)), refused(), P::Error, Some(S::Apply)),
        (
            status(P::Updating, Some(S::Apply)),
            AtomOutcome::Failed(ActionError::Retry("Busy.".to_owned())),
            P::Updating,
            Some(S::Apply),
        ),
        (
            status(P::Updating, Some(S::Apply)),
            AtomOutcome::Applied(vec![object("a", false)]),
            P::Updating,
            Some(S::Wait),
        ),
        (status(P::Updating, Some(S::Wait)), seen(false), P::Updating, Some(S::Wait)),
        (status(P::Updating, Some(S::Wait)), seen(true), P::Updating, Some(S::Prune)),
        (status(P::Updating, Some(S::Wait)), lost(), P::Error, Some(S::Wait)),
        (status(P::Updating, Some(S::Prune)), refused(), P::Error, Some(S::Prune)),
        (status(P::Updating, Some(S::Prune)), AtomOutcome::Pruned, P::Running, Some(S::Done)),
        (status(P::Rollback, Some(S::Restore)), restored(false), P::Rollback, Some(S::Restore)),
        (status(P::Rollback, Some(S::Restore)), refused(), P::Rollback, Some(S::Restore)),
        (status(P::Rollback, Some(S::Restore)), restored(true), P::Reverted, Some(S::Done)),
        (status(P::Reverted, Some(S::Done)), AtomOutcome::CleanedUp, P::Reverted, None),
    ];
    for (before, outcome, phase, stage) in rows {
        let after = settled(&atom(before.clone()), outcome.clone(), 1);
        assert_eq!((after.phase, after.journal.map(|journal| journal.stage)), (phase, stage), "{before:?} {outcome:?}");
    }
}

#[test]
fn inputs_that_are_as_they_were_when_all_was_good_are_no_news() {
    let mut back = status(AtomPhase::Reverted, None);
    back.tried = Some(revision("t2", "new"));
    back.good = Some(revision("t1", "old"));
    let rows = [("new", AtomPhase::Reverted), ("old", AtomPhase::Reverted), ("newer", AtomPhase::Pending)];
    for (inputs, expect) in rows {
        assert_eq!(decided(&atom(back.clone()), &known("t2", inputs), 1).0, expect, "{inputs}");
    }
    back.phase = AtomPhase::Running;
    assert_eq!(decided(&atom(back), &known("t2", "old"), 1).0, AtomPhase::Pending);
}

#[test]
fn the_end_says_what_happened() {
    let mut failed = status(AtomPhase::Rollback, Some(JournalStage::Restore));
    failed.failure =
        Some(AtomFailure { phase: AtomPhase::Error, message: "It crashed.".to_owned(), ..AtomFailure::default() });
    let said = |status: &AtomStatus| {
        conditions::find(&status.conditions, condition::READY).map(|ready| ready.message.clone()).unwrap_or_default()
    };
    let back = settled(&atom(failed.clone()), AtomOutcome::Restored(Vec::new()), 1);
    assert_eq!(said(&back), "Version `v2` was rolled back to version `v1`. It crashed.");
    let first = AtomStatus { last_good_version: None, good: None, ..failed.clone() };
    let removed = settled(&atom(first), AtomOutcome::Restored(Vec::new()), 1);
    assert_eq!(
        said(&removed),
        "Removed everything that version `v2` created; there is no earlier version. It crashed."
    );
    let (late, _) = decision(&atom(failed), &known("t2", "i"), 300);
    assert_eq!(
        said(&late),
        "The rollback of version `v2` did not finish within 5m. Not restored: `ConfigMap a`: Not yet. Rolled back because: It crashed."
    );
}

/// Something that happens to an Atom.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its version is another.
    Version(u8),
    /// Its inputs are others.
    Inputs(u8),
    /// Something that it needs is there, or not.
    Known(bool),
    /// `spec.cancel` names its version, maybe with the rollback, or is absent.
    Cancel(bool, bool),
    Seconds(u16),
    /// What is to be done is done, and this comes of it.
    Done(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u8..3).prop_map(Event::Version),
        (0u8..2).prop_map(Event::Inputs),
        any::<bool>().prop_map(Event::Known),
        any::<(bool, bool)>().prop_map(|(cancelled, rollback)| Event::Cancel(cancelled, rollback)),
        (0u16..400).prop_map(Event::Seconds),
        any::<u8>().prop_map(Event::Done),
        any::<u8>().prop_map(Event::Done),
        any::<u8>().prop_map(Event::Done),
    ]
}

/// An Atom, what it depends on, and the time.
struct Play {
    atom: Atom,
    inputs: u8,
    known: bool,
    now: i64,
    /// The versions that were proven, in their order.
    proven: Vec<String>,
}

impl Play {
    fn desired(&self) -> Desired {
        if self.known { known(&self.atom.spec.version, &self.inputs.to_string()) } else { missing() }
    }

    fn decide(&self) -> Decision<AtomStatus, AtomAction> {
        decide(&AtomFacts { atom: &self.atom, desired: &self.desired() }, at(self.now))
    }

    /// Writes the status that was decided, or does what is to be done; whether there was anything.
    fn step(&mut self, luck: u8) -> bool {
        let Decision { next, requeue_at } = self.decide();
        let before = self.atom.status.clone().unwrap_or_default();
        let action = match next {
            Next::Status(status) => {
                let differs = status != before;
                self.atom.status = Some(status);
                return differs;
            }
            Next::Act(action) => action,
        };
        // Whatever is under way is decided on again at its deadline at the latest.
        let rests = before.phase.is_at_rest();
        assert!(rests || requeue_at.is_some_and(|due| due > at(self.now)), "{before:?}");
        let outcome = self.outcome(action, luck, &before);
        if matches!(outcome, AtomOutcome::Pruned) {
            self.proven.push(before.target_version.clone().unwrap_or_default());
        }
        self.atom.status = Some(settled(&self.atom, outcome, self.now));
        true
    }

    fn outcome(&self, action: AtomAction, luck: u8, before: &AtomStatus) -> AtomOutcome {
        let objects = |ready| vec![object("a", ready)];
        let good = luck.is_multiple_of(3);
        match (action, luck % 3) {
            (AtomAction::CleanUp, _) => AtomOutcome::CleanedUp,
            (_, 1) if luck > 128 => AtomOutcome::Failed(ActionError::Retry("Busy.".to_owned())),
            (AtomAction::Restore, _) => AtomOutcome::Restored(objects(good)),
            (AtomAction::CheckReadiness, 2) => {
                AtomOutcome::ReadinessChecked { objects: objects(false), failed: Some("It crashed.".to_owned()) }
            }
            (AtomAction::CheckReadiness, _) => AtomOutcome::ReadinessChecked { objects: objects(good), failed: None },
            (_, 2) => AtomOutcome::Failed(ActionError::refused(reason::TEMPLATE_INVALID, "No.")),
            (AtomAction::Prepare, _) => {
                AtomOutcome::Prepared { secret_name: before.attempts.to_string(), objects: objects(false) }
            }
            (AtomAction::Apply, _) => {
                assert!(before.journal.is_some(), "nothing is written without a journal");
                AtomOutcome::Applied(objects(false))
            }
            (AtomAction::Prune, _) => AtomOutcome::Pruned,
            (action, _) => unreachable!("{action:?}"),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Version(number) => {
                let version = format!("v{number}");
                if self.atom.spec.version != version {
                    self.atom.spec.version = version;
                    self.atom.metadata.generation = self.atom.metadata.generation.map(|number| number + 1);
                }
            }
            Event::Inputs(number) => self.inputs = number,
            Event::Known(known) => self.known = known,
            Event::Cancel(cancelled, rollback) => {
                let version = self.atom.spec.version.clone();
                self.atom.spec.cancel = cancelled.then(|| cancel(&version, rollback)).flatten();
            }
            Event::Seconds(seconds) => self.now += i64::from(seconds),
            Event::Done(luck) => drop(self.step(luck)),
        }
    }
}

proptest! {
    #[test]
    fn from_any_state_with_any_events_it_ends_or_waits_for_a_named_reason(
        events in prop::collection::vec(event(), 0..60),
        luck in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut atom = atom(AtomStatus::default());
        atom.spec.version = "v0".to_owned();
        let mut play = Play { atom, inputs: 0, known: true, now: 0, proven: Vec::new() };
        for event in events {
            play.take(event);
            let status = play.atom.status.clone().unwrap_or_default();
            // What a rollback goes back to is always what was last proven.
            prop_assert_eq!(status.last_good_version.as_ref(), play.proven.last());
        }
        // From here on nothing new happens: time passes, and what is to be done is done, well or not.
        for luck in luck.iter().cycle().take(4000) {
            if !play.step(*luck) {
                break;
            }
            play.now += 1;
        }
        let requeue_at = play.decide().requeue_at;
        let (end, action) = decision(&play.atom, &play.desired(), play.now);
        prop_assert!(action.is_none(), "{:?}", end);
        let ready = conditions::find(&end.conditions, condition::READY);
        prop_assert!(ready.is_some_and(|ready| !ready.reason.is_empty() && !ready.message.is_empty()));
        let waits = end.phase == AtomPhase::Pending && (!play.known || play.atom.spec.cancel.is_some());
        prop_assert!(end.phase.is_at_rest() || waits, "{:?}", end);
        // Half of an update does not wait for ever.
        prop_assert!(!waits || end.journal.is_none() || requeue_at.is_some());
        prop_assert!(end.journal.is_none() || end.phase != AtomPhase::Running);
    }
}

const PHASES: [AtomPhase; 9] = [
    AtomPhase::Pending,
    AtomPhase::Updating,
    AtomPhase::Running,
    AtomPhase::Cancelled,
    AtomPhase::Deadline,
    AtomPhase::Error,
    AtomPhase::Rollback,
    AtomPhase::Reverted,
    AtomPhase::Failure,
];

const STAGES: [JournalStage; 6] = [
    JournalStage::Kept,
    JournalStage::Apply,
    JournalStage::Wait,
    JournalStage::Prune,
    JournalStage::Restore,
    JournalStage::Done,
];

/// Any status, also one that the machine never writes.
fn any_status() -> impl Strategy<Value = AtomStatus> {
    let cancellation = prop::option::of(select(vec![Cancellation::Requested, Cancellation::Superseded]));
    let failure = prop::option::of(cancellation.prop_map(|cancellation| AtomFailure {
        cancellation,
        phase: AtomPhase::Cancelled,
        ..AtomFailure::default()
    }));
    let parts = (
        select(PHASES.to_vec()),
        prop::option::of(select(STAGES.to_vec())),
        failure,
        prop::option::of(0_i64..400),
        prop::option::of(select(vec![revision("t1", "i"), revision("t2", "i")])),
        any::<bool>(),
    );
    parts.prop_map(|(phase, stage, failure, started, tried, objects)| AtomStatus {
        failure,
        started_at: started.map(|second| MicroTime(at(second))),
        tried,
        objects: if objects { vec![object("a", false)] } else { Vec::new() },
        ..status(phase, stage)
    })
}

fn any_outcome() -> impl Strategy<Value = AtomOutcome> {
    let objects = || prop::collection::vec(any::<bool>().prop_map(|ready| object("a", ready)), 0..2);
    prop_oneof![
        objects().prop_map(|objects| AtomOutcome::Prepared { secret_name: "k".to_owned(), objects }),
        objects().prop_map(AtomOutcome::Applied),
        (objects(), prop::option::of(Just("It crashed.".to_owned())))
            .prop_map(|(objects, failed)| AtomOutcome::ReadinessChecked { objects, failed }),
        Just(AtomOutcome::Pruned),
        objects().prop_map(AtomOutcome::Restored),
        Just(AtomOutcome::CleanedUp),
        objects().prop_map(AtomOutcome::ObjectsDeleted),
        Just(AtomOutcome::Failed(ActionError::refused(reason::IMMUTABLE, "No."))),
        Just(AtomOutcome::Failed(ActionError::Retry("Busy.".to_owned()))),
    ]
}

/// Whether the table has a transition from one state to the other, or they are the same.
fn is_allowed(from: AtomState, to: AtomState) -> bool {
    from == to || machine::TRANSITIONS.iter().any(|(states, _, next)| states.contains(&from) && *next == to)
}

proptest! {
    #[test]
    fn any_status_and_any_event_give_a_transition_of_the_table(
        status in any_status(),
        cancelled in select(vec![None, cancel("v2", false), cancel("v2", true), cancel("v9", true)]),
        deleted in any::<bool>(),
        desired in select(vec![known("t1", "i"), known("t2", "i"), known("t3", "j"), missing()]),
        second in 0_i64..1000,
        outcome in any_outcome(),
    ) {
        let mut atom = atom(status.clone());
        atom.spec.cancel = cancelled;
        let (decided, _) = decision(&atom, &desired, second);
        let (from, to) = (AtomState::of(&status), AtomState::of(&decided));
        prop_assert!(is_allowed(from, to), "{from:?} -> {to:?}");
        let settled = settled(&atom, outcome.clone(), second);
        let to = AtomState::of(&settled);
        prop_assert!(is_allowed(from, to), "{outcome:?}: {from:?} -> {to:?}");
        // The phase of an Atom that is being deleted never changes.
        if deleted {
            atom.metadata.deletion_timestamp = Some(Time(at(1)));
            let (decided, _) = decision(&atom, &desired, second);
            prop_assert_eq!(decided.phase, status.phase);
        }
    }
}
