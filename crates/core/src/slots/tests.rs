#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

fn key(namespace: &str, name: impl ToString) -> RunKey {
    (namespace.to_owned(), name.to_string())
}

fn pool(namespace: Option<u32>, cluster: Option<u32>) -> Pools {
    [("p".to_owned(), RunLimits { namespace, cluster })].into()
}

#[test]
fn a_namespace_with_500_waiting_runs_delays_another_by_one_run() {
    let pools = pool(None, Some(4));
    let mut slots = Slots::default();
    for index in 0..500 {
        let _ = slots.ask(&key("large", format!("{index:03}")), 0, pools.clone());
    }
    let full = slots.ask(&key("small", "first"), 0, pools.clone()).unwrap_err();
    assert_eq!(
        full.message(),
        "It waits for a slot: Policy `p` allows 4 Runs at once in the cluster (spec.limits.runs.cluster)."
    );
    let _ = slots.ask(&key("small", "second"), 0, pools.clone());
    slots.release(&key("large", "000"));
    assert_eq!(slots.next(), [key("small", "first")]);
    assert!(slots.ask(&key("large", "004"), 0, pools.clone()).is_err(), "nobody takes the slot of another");
    assert!(slots.ask(&key("small", "first"), 0, pools.clone()).is_ok());
    // Three of one and one of the other: the other is next again.
    slots.release(&key("large", "001"));
    assert_eq!(slots.next(), [key("small", "second")]);
}

#[test]
fn with_one_slot_namespaces_take_turns() {
    let pools = pool(None, Some(1));
    let mut slots = Slots::default();
    for index in 0..4 {
        let _ = slots.ask(&key("a", index), 0, pools.clone());
    }
    for index in 0..2 {
        let _ = slots.ask(&key("b", index), 0, pools.clone());
    }
    let mut order = Vec::new();
    while let Some(run) = slots.running().pop() {
        order.push(format!("{}{}", run.0, run.1));
        slots.release(&run);
        if let Some(next) = slots.next().first() {
            assert!(slots.ask(next, 0, pools.clone()).is_ok());
        }
    }
    assert_eq!(order, ["a0", "b0", "a1", "b1", "a2", "a3"]);
}

#[test]
fn a_run_says_which_limit_it_waits_for_and_behind_whom() {
    let pools = pool(Some(1), Some(10));
    let mut slots = Slots::default();
    assert!(slots.ask(&key("a", "one"), 0, pools.clone()).is_ok());
    for name in ["two", "three", "four", "five", "six"] {
        let _ = slots.ask(&key("a", name), 0, pools.clone());
    }
    let full = slots.ask(&key("a", "six"), 0, pools.clone()).unwrap_err();
    assert_eq!(
        full.message(),
        "It waits for a slot: Policy `p` allows 1 Run at once in this namespace (spec.limits.runs.namespace). Before it: `two`, `three`, `four` and 1 more."
    );
    assert!(slots.ask(&key("b", "one"), 0, pools).is_ok(), "another namespace has slots of its own");
    assert!(slots.ask(&key("a", "unlimited"), 0, Pools::new()).is_ok());
}

/// What can happen, in any order.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Asks(u8, u8),
    Ends(u8),
}

proptest! {
    #[test]
    fn limits_hold_no_slot_is_wasted_and_an_idle_namespace_is_next(
        (per_namespace, all) in (prop::option::of(1u32..4), prop::option::of(1u32..5)),
        events in prop::collection::vec(
            prop_oneof![(0u8..4, 0u8..12).prop_map(|(at, name)| Happens::Asks(at, name)), (0u8..8).prop_map(Happens::Ends)],
            0..120,
        ),
    ) {
        let pools = pool(per_namespace, all);
        let mut slots = Slots::default();
        for event in events {
            match event {
                Happens::Asks(namespace, name) => drop(slots.ask(&key(&format!("n{namespace}"), name), 0, pools.clone())),
                Happens::Ends(index) => {
                    let running = slots.running();
                    if let Some(run) = running.get(usize::from(index)) {
                        slots.release(run);
                        let idle: Vec<String> = slots.waiting.keys().map(|(namespace, _)| namespace.clone())
                            .filter(|namespace| !slots.running.keys().any(|(of, _)| of == namespace)).collect();
                        let next = slots.next();
                        if let (Some(first), false) = (next.first(), idle.is_empty()) {
                            prop_assert!(idle.contains(&first.0), "{first:?} went before a namespace that had none");
                        }
                        for run in next {
                            prop_assert!(slots.ask(&run, 0, pools.clone()).is_ok());
                        }
                    }
                }
            }
            let count = |namespace: &str| slots.running.keys().filter(|(of, _)| of == namespace).count();
            for namespace in ["n0", "n1", "n2", "n3"] {
                prop_assert!(per_namespace.is_none_or(|limit| count(namespace) <= limit as usize));
            }
            prop_assert!(all.is_none_or(|limit| slots.running.len() <= limit as usize));
            prop_assert_eq!(slots.next(), Vec::<RunKey>::new(), "a slot is free, and somebody may take it");
        }
        // Everybody gets a slot in the end.
        while let Some(run) = slots.running().into_iter().next() {
            slots.release(&run);
            for run in slots.next() {
                prop_assert!(slots.ask(&run, 0, pools.clone()).is_ok());
            }
        }
        prop_assert!(slots.waiting.is_empty());
    }
}

#[test]
fn a_priority_counts_within_a_namespace_and_takes_no_turn_of_another() {
    let pools = pool(None, Some(1));
    let mut slots = Slots::default();
    for (namespace, name, priority) in [("a", "first", 0), ("a", "low", -5), ("a", "urgent", 10), ("b", "other", 0)] {
        let _ = slots.ask(&key(namespace, name), priority, pools.clone());
    }
    let full = slots.ask(&key("a", "low"), -5, pools.clone()).unwrap_err();
    assert_eq!(full.behind, ["urgent"]);
    let mut order = Vec::new();
    while let Some(run) = slots.running().pop() {
        order.push(run.1.clone());
        slots.release(&run);
        if let Some((namespace, name)) = slots.next().first() {
            let priority = if name == "urgent" { 10 } else { 0 };
            assert!(slots.ask(&key(namespace, name), priority, pools.clone()).is_ok());
        }
    }
    assert_eq!(order, ["first", "other", "urgent", "low"]);
}
