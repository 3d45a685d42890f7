//! Owned fields after the schema changed what is owned as a whole.

use super::{Items, Node, Shape};
use crate::patch::element::Element;
use crate::patch::fields::{Branch, Set};
use crate::schema::Schema;

/// The set with every field below an atomic object or list replaced by that object or list.
pub fn with_schema(set: &Set, schema: &Schema) -> Set {
    below(Node::root(schema), set)
}

/// The set with every named field that has owned fields below it; what prune removes has to go as a whole.
pub fn with_named_fields(set: &Set, schema: &Schema) -> Set {
    named(Some(Node::root(schema)), set)
}

fn below(node: Node<'_>, set: &Set) -> Set {
    let mut out = Set::default();
    for (element, branch) in set.branches() {
        let child = match element {
            Element::Field(name) => node.named(name).or_else(|| node.other()),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => Some(node.item()),
        };
        let branch = match child {
            Some(child) => reconcile(child, branch),
            None => branch.clone(),
        };
        out.graft(element.clone(), branch);
    }
    out
}

fn reconcile(node: Node<'_>, branch: &Branch) -> Branch {
    let Node::Known { schema, .. } = node else {
        return branch.clone();
    };
    let atomic = match node.shape(None) {
        // What may be anything is not looked into.
        Shape::Map if schema.properties.is_empty() && schema.additional.is_none() => {
            return branch.clone();
        }
        Shape::Map => node.is_atomic_map(),
        Shape::List => matches!(node.items(), Items::Atomic),
        Shape::Scalar => return branch.clone(),
    };
    match atomic {
        true if branch.below.is_empty() => branch.clone(),
        true => Branch::leaf(),
        false => Branch { member: branch.member, below: below(node, &branch.below) },
    }
}

fn named(node: Option<Node<'_>>, set: &Set) -> Set {
    let mut out = Set::default();
    for (element, branch) in set.branches() {
        let (is_named, child) = match (element, node) {
            (Element::Field(name), Some(node)) => {
                let named = node.named(name);
                (named.is_some(), named.or_else(|| node.other()))
            }
            (Element::Key(_), Some(node)) => (false, Some(node.item())),
            _ => (false, None),
        };
        let member = branch.member || (is_named && !branch.below.is_empty());
        out.graft(element.clone(), Branch { member, below: named(child, &branch.below) });
    }
    out
}
