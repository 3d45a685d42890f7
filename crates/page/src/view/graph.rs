//! What waits for what: the dependencies between Stacks, in layers.

use std::collections::{BTreeMap, BTreeSet};

use knoll_api::Stack;
use knoll_core::stack::needs;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use super::lists::all;
use super::shown::{Status, Tone};
use crate::error::PageError;
use crate::user::User;

/// Stacks of a picture. Of more, the table is read more easily.
pub const MOST: usize = 200;

/// The dependencies of Stacks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GraphView {
    /// The namespace that is shown; all when empty.
    pub namespace: String,
    /// Each layer needs Stacks of earlier ones.
    pub layers: Vec<Vec<GraphNode>>,
    pub total: usize,
}

/// A Stack in the graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GraphNode {
    pub namespace: String,
    pub name: String,
    pub status: Status,
    /// The names of the Stacks that it needs, in its namespace.
    pub needs: Vec<String>,
    pub exists: bool,
}

pub async fn observe(user: &User, namespace: &str) -> Result<Vec<GraphNode>, PageError> {
    Ok(all(&user.client, namespace, |stack: &Stack| Some(node(stack))).await?.0)
}

fn node(stack: &Stack) -> GraphNode {
    let needs: BTreeSet<&str> = needs(stack).into_iter().collect();
    GraphNode {
        namespace: stack.namespace().unwrap_or_default(),
        name: stack.name_any(),
        status: Status::of_stack(stack.status.as_ref().map(|status| status.phase).unwrap_or_default()),
        needs: needs.into_iter().map(str::to_owned).collect(),
        exists: true,
    }
}

/// The graph of these Stacks. A Stack is in the first layer in which all that it needs lies before it; the time that this
/// takes grows with the number of dependencies only. What is left is a circle, and in the last layer.
#[must_use]
pub fn view(namespace: &str, stacks: Vec<GraphNode>) -> GraphView {
    type Key = (String, String);
    let key = |node: &GraphNode| (node.namespace.clone(), node.name.clone());
    let mut nodes: BTreeMap<Key, GraphNode> = stacks.into_iter().map(|node| (key(&node), node)).collect();
    let needed = nodes.values().flat_map(|node| node.needs.iter().map(|name| (node.namespace.clone(), name.clone())));
    for (namespace, name) in needed.collect::<BTreeSet<Key>>() {
        nodes.entry((namespace.clone(), name.clone())).or_insert_with(|| GraphNode {
            namespace,
            name,
            status: Status::new("Not found", Tone::Bad),
            needs: Vec::new(),
            exists: false,
        });
    }
    let total = nodes.len();
    let mut waits: BTreeMap<Key, usize> = BTreeMap::new();
    let mut dependents: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
    for (key, node) in &nodes {
        waits.insert(key.clone(), node.needs.len());
        for name in &node.needs {
            dependents.entry((node.namespace.clone(), name.clone())).or_default().push(key.clone());
        }
    }
    let mut layers: Vec<Vec<GraphNode>> = Vec::new();
    let mut next: BTreeSet<Key> = waits.iter().filter(|(_, count)| **count == 0).map(|(key, _)| key.clone()).collect();
    while !next.is_empty() {
        let mut later = BTreeSet::new();
        for dependent in next.iter().filter_map(|key| dependents.remove(key)).flatten() {
            if let Some(count) = waits.get_mut(&dependent) {
                *count -= 1;
                if *count == 0 {
                    later.insert(dependent);
                }
            }
        }
        layers.push(next.iter().filter_map(|key| nodes.remove(key)).collect());
        next = later;
    }
    if !nodes.is_empty() {
        layers.push(nodes.into_values().collect());
    }
    GraphView { namespace: namespace.to_owned(), layers, total }
}

#[cfg(test)]
mod tests {
    use knoll_api::source::LocalRef;
    use knoll_api::stack::StackSpec;

    use super::*;

    #[test]
    fn a_stack_lies_behind_all_that_it_needs() {
        let stack = |name: &str, needs: &[&str]| {
            let depends_on = needs.iter().map(|name| LocalRef { name: (*name).to_owned() }).collect();
            Stack::new(name, StackSpec { depends_on, ..StackSpec::default() })
        };
        let all = [
            stack("web", &["net", "db"]),
            stack("net", &[]),
            stack("db", &["net", "gone"]),
            stack("a", &["b"]),
            stack("b", &["a"]),
        ];
        let view = view("", all.iter().map(node).collect());
        let layers: Vec<Vec<&str>> =
            view.layers.iter().map(|layer| layer.iter().map(|node| node.name.as_str()).collect()).collect();
        assert_eq!(layers, [vec!["gone", "net"], vec!["db"], vec!["web"], vec!["a", "b"]]);
        assert!(!view.layers[0][0].exists);
    }

    /// Each layer looked at all Stacks that were left, so a long chain held a worker for minutes.
    #[test]
    fn a_chain_of_stacks_took_the_square_of_its_length() {
        let node = |number: usize| GraphNode {
            namespace: "n".to_owned(),
            name: format!("s{number:06}"),
            status: Status::default(),
            needs: number.checked_sub(1).map(|before| format!("s{before:06}")).into_iter().collect(),
            exists: true,
        };
        let view = view("n", (0..50_000).map(node).collect());
        assert_eq!((view.total, view.layers.len()), (50_000, 50_000));
        assert_eq!(view.layers[49_999][0].name, "s049999");
    }
}
