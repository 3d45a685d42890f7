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

pub async fn observe(user: &User, namespace: &str) -> Result<Vec<Stack>, PageError> {
    Ok(all::<Stack>(&user.client, namespace).await?.0)
}

#[must_use]
pub fn view(namespace: &str, stacks: &[Stack]) -> GraphView {
    type Key = (String, String);
    let mut nodes: BTreeMap<Key, GraphNode> = BTreeMap::new();
    for stack in stacks {
        let place = stack.namespace().unwrap_or_default();
        let needs: Vec<String> = needs(stack).into_iter().map(str::to_owned).collect();
        for name in &needs {
            let missing = GraphNode {
                namespace: place.clone(),
                name: name.clone(),
                status: Status::new("Not found", Tone::Bad),
                needs: Vec::new(),
                exists: false,
            };
            nodes.entry((place.clone(), name.clone())).or_insert(missing);
        }
        let status = Status::of_stack(stack.status.as_ref().map(|status| status.phase).unwrap_or_default());
        let node = GraphNode { namespace: place.clone(), name: stack.name_any(), status, needs, exists: true };
        nodes.insert((place, stack.name_any()), node);
    }
    // A Stack is in the first layer in which all that it needs lies before it. What is left is a circle.
    let mut layers: Vec<Vec<GraphNode>> = Vec::new();
    let mut placed: BTreeSet<Key> = BTreeSet::new();
    let total = nodes.len();
    while !nodes.is_empty() {
        let is_next =
            |node: &GraphNode| node.needs.iter().all(|name| placed.contains(&(node.namespace.clone(), name.clone())));
        let next: Vec<Key> = nodes.iter().filter(|(_, node)| is_next(node)).map(|(key, _)| key.clone()).collect();
        let next = if next.is_empty() { nodes.keys().cloned().collect() } else { next };
        layers.push(next.iter().filter_map(|key| nodes.remove(key)).collect());
        placed.extend(next);
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
        let view = view("", &all);
        let layers: Vec<Vec<&str>> =
            view.layers.iter().map(|layer| layer.iter().map(|node| node.name.as_str()).collect()).collect();
        assert_eq!(layers, [vec!["gone", "net"], vec!["db"], vec!["web"], vec!["a", "b"]]);
        assert!(!view.layers[0][0].exists);
    }
}
