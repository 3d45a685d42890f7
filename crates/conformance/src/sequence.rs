//! Generates random sequences of writes from a seed, in the form of scenarios, so that a difference can be reproduced
//! and reduced.
//!
//! A sequence uses only a few names, so that its writes interact: objects are created twice, applied by two managers,
//! patched during deletion, owned by each other and released.

use serde_json::{Value, json};

use crate::scenario::{Scenario, Step};

/// A pseudo-random generator that gives the same numbers for a seed on every platform.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// The kinds that sequences use: resource path, apiVersion, kind.
const KINDS: [(&str, &str, &str); 4] = [
    ("${core}/configmaps", "v1", "ConfigMap"),
    ("${core}/secrets", "v1", "Secret"),
    ("${custom}/widgets", "${group}/v1", "Widget"),
    ("${core}/serviceaccounts", "v1", "ServiceAccount"),
];
const NAMES: [&str; 3] = ["one", "two", "three"];
const MANAGERS: [&str; 2] = ["left", "right"];
const FINALIZERS: [&str; 2] = ["example.com/a", "example.com/b"];

/// The sequence of a seed.
pub fn make(seed: u64, length: usize) -> Scenario {
    let mut random = Random::new(seed);
    let mut steps = Vec::new();
    for _ in 0..length {
        let kind = *random.pick(if random.clone().chance(60) { &KINDS[..1] } else { &KINDS[..] });
        // Custom resources are as frequent as ConfigMaps.
        let kind = if random.chance(35) { KINDS[2] } else { kind };
        steps.push(step(&mut random, kind));
        steps.push(settle());
    }
    Scenario {
        scenario: format!("the sequence of seed {seed}"),
        with: vec!["widgets".to_owned()],
        vars: [].into(),
        steps,
        file: "random".to_owned(),
    }
}

/// Lists everything that a sequence may have changed, when the controllers are done.
fn settle() -> Step {
    // The root certificate exists in every namespace, and no sequence changes it.
    let others = "?fieldSelector=metadata.name%21%3Dkube-root-ca.crt";
    let paths = KINDS.iter().map(|(path, _, _)| format!("{path}{others}"));
    Step { settle: paths.collect(), ..Step::default() }
}

fn step(random: &mut Random, (path, version, kind): (&str, &str, &str)) -> Step {
    let name = *random.pick(&NAMES);
    let manager = *random.pick(&MANAGERS);
    let named = format!("{path}/{name}");
    let query = format!("?fieldManager={manager}");
    let dry = if random.chance(8) { "&dryRun=All" } else { "" };
    let object = |random: &mut Random| object(random, version, kind, name);
    let with = |request: String, body: Value, media: Option<&str>| Step {
        request: Some(request),
        body: Some(body),
        media: media.map(str::to_owned),
        ..Step::default()
    };
    match random.below(100) {
        0..25 => {
            let body = object(random);
            let mut step = with(format!("POST {path}{query}{dry}"), body, None);
            step.save = [(variable(kind, name), "/metadata/uid".to_owned())].into();
            step
        }
        25..37 => with(format!("PUT {named}{query}{dry}"), object(random), None),
        37..50 => with(format!("PATCH {named}{query}{dry}"), change(random, kind), Some("merge")),
        50..57 => with(format!("PATCH {named}{query}{dry}"), operations(random, kind), Some("json")),
        57..62 => with(format!("PATCH {named}{query}{dry}"), change(random, kind), Some("strategic")),
        62..84 => {
            let force = if random.chance(40) { "&force=true" } else { "" };
            let mut step = with(format!("PATCH {named}{query}{force}{dry}"), object(random), Some("apply"));
            step.save = [(variable(kind, name), "/metadata/uid".to_owned())].into();
            step
        }
        84..89 if kind == "Widget" => {
            let status =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "status": status(random)});
            with(format!("PATCH {named}/status{query}&force=true"), status, Some("apply"))
        }
        _ => {
            let policy = *random.pick(&["Background", "Foreground", "Orphan", ""]);
            let body = if policy.is_empty() { json!({}) } else { json!({"propagationPolicy": policy}) };
            let dry = if dry.is_empty() { "" } else { "?dryRun=All" };
            with(format!("DELETE {named}{dry}"), body, None)
        }
    }
}

fn variable(kind: &str, name: &str) -> String {
    format!("{kind}-{name}")
}

fn object(random: &mut Random, version: &str, kind: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata(random)});
    object["metadata"]["name"] = name.into();
    content(random, kind, &mut object);
    object
}

fn metadata(random: &mut Random) -> Value {
    let mut metadata = json!({});
    if random.chance(40) {
        metadata["labels"] = texts(random);
    }
    if random.chance(15) {
        metadata["annotations"] = texts(random);
    }
    if random.chance(25) {
        let count = 1 + random.below(2);
        metadata["finalizers"] = json!(FINALIZERS[..count]);
    }
    if random.chance(30) {
        let count = 1 + random.below(2);
        let owners: Vec<Value> = NAMES[..count].iter().map(|name| owner(random, name)).collect();
        metadata["ownerReferences"] = owners.into();
    }
    metadata
}

/// An owner that may exist, be deleted, or have never existed.
fn owner(random: &mut Random, name: &str) -> Value {
    let mut owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("${{{}}}", variable("ConfigMap", name)),
    });
    if random.chance(50) {
        owner["blockOwnerDeletion"] = true.into();
    }
    owner
}

fn texts(random: &mut Random) -> Value {
    let mut map = json!({});
    for key in ["a", "b", "c"] {
        if random.chance(50) {
            map[key] = format!("{}", random.below(3)).into();
        }
    }
    map
}

fn content(random: &mut Random, kind: &str, object: &mut Value) {
    match kind {
        "ConfigMap" => {
            if random.chance(80) {
                object["data"] = texts(random);
            }
            if random.chance(5) {
                object["immutable"] = true.into();
            }
        }
        "Secret" => object["stringData"] = texts(random),
        "ServiceAccount" => {
            if random.chance(50) {
                object["automountServiceAccountToken"] = random.chance(50).into();
            }
            if random.chance(50) {
                object["secrets"] = names(random);
            }
        }
        _ => object["spec"] = spec(random),
    }
}

fn names(random: &mut Random) -> Value {
    let mut list: Vec<Value> = Vec::new();
    for name in ["x", "y", "z"] {
        if random.chance(50) {
            list.push(json!({"name": name}));
        }
    }
    list.into()
}

fn spec(random: &mut Random) -> Value {
    let mut spec = json!({});
    if random.chance(50) {
        spec["size"] = (*random.pick(&["small", "large", "huge"])).into();
    }
    if random.chance(40) {
        spec["replicas"] = (random.below(13)).into();
    }
    if random.chance(40) {
        let tags = ["a", "b", "c"];
        spec["tags"] = json!(tags[random.below(3)..]);
    }
    if random.chance(40) {
        let mut parts = Vec::new();
        for name in ["x", "y"] {
            if random.chance(60) {
                parts.push(json!({"name": name, "count": random.below(3)}));
            }
        }
        spec["parts"] = parts.into();
    }
    if random.chance(30) {
        spec["options"] = json!({"o1": format!("{}", random.below(2))});
    }
    if random.chance(30) {
        spec["nested"] = json!({"deep": {"x": format!("{}", random.below(2))}});
    }
    if random.chance(20) {
        spec["atomic"] = texts(random);
    }
    if random.chance(20) {
        spec["anything"] = json!({"a": [random.below(2)], "b": {"c": random.below(2)}});
    }
    if random.chance(15) {
        spec["fixed"] = format!("{}", random.below(2)).into();
    }
    if random.chance(15) {
        spec["grows"] = random.below(4).into();
    }
    if random.chance(10) {
        spec["maybe"] = Value::Null;
    }
    if random.chance(5) {
        spec["unknown"] = 1.into();
    }
    spec
}

fn status(random: &mut Random) -> Value {
    json!({
        "phase": *random.pick(&["New", "Ready"]),
        "conditions": [{"type": *random.pick(&["Ready", "Synced"]), "status": *random.pick(&["True", "False"])}],
    })
}

/// A merge patch that sets some fields and removes others.
fn change(random: &mut Random, kind: &str) -> Value {
    let mut change = json!({});
    content(random, kind, &mut change);
    if random.chance(40) {
        change["metadata"] = metadata(random);
    }
    if random.chance(25) {
        change["metadata"]["finalizers"] = Value::Null;
    }
    if random.chance(15) {
        change["metadata"]["labels"] = Value::Null;
    }
    if random.chance(15) {
        change["metadata"]["ownerReferences"] = Value::Null;
    }
    if kind == "ConfigMap" && random.chance(30) {
        change["data"]["a"] = Value::Null;
    }
    change
}

fn operations(random: &mut Random, kind: &str) -> Value {
    let field = if kind == "Widget" { "/spec/replicas" } else { "/metadata/labels" };
    let value = if kind == "Widget" { json!(random.below(12)) } else { texts(random) };
    let mut list = vec![json!({"op": *random.pick(&["add", "replace"]), "path": field, "value": value})];
    if random.chance(30) {
        list.push(json!({"op": "remove", "path": "/metadata/finalizers"}));
    }
    if random.chance(20) {
        list.push(json!({"op": "test", "path": "/metadata/labels/a", "value": "1"}));
    }
    list.into()
}

/// The sequence without one of its writes, if it is long enough.
pub fn without(scenario: &Scenario, at: usize) -> Option<Scenario> {
    let writes = scenario.steps.len() / 2;
    if writes < 2 || at >= writes {
        return None;
    }
    let mut smaller = scenario.clone();
    smaller.steps.drain(at * 2..at * 2 + 2);
    Some(smaller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_sequence() {
        let text = |seed| serde_json::to_string(&make(seed, 15)).unwrap_or_default();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn a_smaller_sequence_lacks_one_write() {
        let whole = make(1, 3);
        let smaller = without(&whole, 1).unwrap_or_else(|| panic!("it has three writes"));
        assert_eq!(smaller.steps.len(), 4);
        assert_eq!(smaller.steps[2].request, whole.steps[4].request);
        assert!(without(&make(1, 1), 0).is_none());
    }
}
