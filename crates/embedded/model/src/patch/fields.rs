//! Sets of field paths, and `FieldsV1`, the form in which `metadata.managedFields` stores them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde_json::{Map, Value};

use super::element::{Element, ElementError};

/// A path from the root of an object to one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(pub Vec<Element>);

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(f, "{element}"))
    }
}

/// A set of fields. Owning a field does not mean owning what is below it, nor the other way around.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    branches: BTreeMap<Element, Branch>,
}

/// What a set says about one field and all that is below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// The field itself is in the set.
    pub member: bool,
    /// The fields below it that are in the set.
    pub below: Set,
}

impl Branch {
    /// A field without fields below.
    pub fn leaf() -> Self {
        Self { member: true, below: Set::default() }
    }

    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

/// `FieldsV1` that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    /// A key is not a path element.
    #[error(transparent)]
    Element(#[from] ElementError),
    /// A value is not an object.
    #[error("expected an object below {0:?}")]
    NotAnObject(String),
}

impl Set {
    /// The set of these paths.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a FieldPath>) -> Self {
        let mut set = Self::default();
        paths.into_iter().for_each(|path| set.insert(path));
        set
    }

    /// The set of one path of field names.
    pub fn named(names: &[&str]) -> Self {
        Self::of([&FieldPath(names.iter().map(|name| Element::field(*name)).collect())])
    }

    /// Adds one path. The empty path is the whole object, which nobody owns.
    pub fn insert(&mut self, path: &FieldPath) {
        let Some((last, parents)) = path.0.split_last() else {
            return;
        };
        let mut set = self;
        for element in parents {
            set = &mut set.branches.entry(element.clone()).or_default().below;
        }
        set.branches.entry(last.clone()).or_default().member = true;
    }

    /// Adds all that a branch says, below this element.
    pub fn graft(&mut self, element: Element, branch: Branch) {
        if branch.is_empty() {
            return;
        }
        match self.branches.entry(element) {
            Entry::Vacant(entry) => {
                entry.insert(branch);
            }
            Entry::Occupied(mut entry) => {
                let here = entry.get_mut();
                here.member |= branch.member;
                here.below.absorb(branch.below);
            }
        }
    }

    /// Adds all of another set.
    pub fn absorb(&mut self, other: Set) {
        if self.branches.is_empty() {
            self.branches = other.branches;
            return;
        }
        for (element, branch) in other.branches {
            self.graft(element, branch);
        }
    }

    /// Nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// How many paths are in the set.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.branches.values().map(|branch| usize::from(branch.member) + branch.below.len()).sum()
    }

    /// Whether this path is in the set.
    pub fn has(&self, path: &FieldPath) -> bool {
        let Some((last, parents)) = path.0.split_last() else {
            return false;
        };
        let mut set = self;
        for element in parents {
            match set.branches.get(element) {
                Some(branch) => set = &branch.below,
                None => return false,
            }
        }
        set.has_member(last)
    }

    /// Whether this one step is in the set.
    pub fn has_member(&self, element: &Element) -> bool {
        self.branches.get(element).is_some_and(|branch| branch.member)
    }

    /// What the set says about one step and below.
    pub fn branch(&self, element: &Element) -> Option<&Branch> {
        self.branches.get(element)
    }

    /// The first steps of all paths, in order.
    pub fn branches(&self) -> impl Iterator<Item = (&Element, &Branch)> {
        self.branches.iter()
    }

    /// The paths that are in either set.
    #[must_use]
    pub fn union(&self, other: &Set) -> Set {
        let mut set = self.clone();
        set.absorb(other.clone());
        set
    }

    /// The paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Set) -> Set {
        self.combine(other, |here, there| Branch {
            member: here.member && there.is_some_and(|there| there.member),
            below: there.map(|there| here.below.intersection(&there.below)).unwrap_or_default(),
        })
    }

    /// The paths that are in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Set) -> Set {
        self.combine(other, |here, there| match there {
            None => here.clone(),
            Some(there) => Branch { member: here.member && !there.member, below: here.below.difference(&there.below) },
        })
    }

    /// The paths of this set that are neither in the other nor below a path that is.
    #[must_use]
    pub fn recursive_difference(&self, other: &Set) -> Set {
        self.combine(other, |here, there| match there {
            None => here.clone(),
            Some(there) if there.member => Branch::default(),
            Some(there) => Branch { member: here.member, below: here.below.recursive_difference(&there.below) },
        })
    }

    fn combine(&self, other: &Set, join: impl Fn(&Branch, Option<&Branch>) -> Branch) -> Set {
        let branches = self
            .branches
            .iter()
            .map(|(element, branch)| (element, join(branch, other.branches.get(element))))
            .filter(|(_, branch)| !branch.is_empty())
            .map(|(element, branch)| (element.clone(), branch))
            .collect();
        Set { branches }
    }

    /// Whether every path of this set is in the other.
    #[cfg(test)]
    pub fn is_subset(&self, other: &Set) -> bool {
        self.branches.iter().all(|(element, here)| {
            other
                .branches
                .get(element)
                .is_some_and(|there| (!here.member || there.member) && here.below.is_subset(&there.below))
        })
    }

    /// All paths, those of a level before those below it.
    pub fn paths(&self) -> Vec<FieldPath> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element>, paths: &mut Vec<FieldPath>) {
        for (element, _) in self.branches.iter().filter(|(_, branch)| branch.member) {
            prefix.push(element.clone());
            paths.push(FieldPath(prefix.clone()));
            prefix.pop();
        }
        for (element, branch) in &self.branches {
            prefix.push(element.clone());
            branch.below.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// Reads `FieldsV1`. Elements of a kind that is not known are skipped.
    pub fn from_fields(fields: &Value) -> Result<Self, FieldsError> {
        Ok(read(fields, "fieldsV1")?.below)
    }

    /// Writes `FieldsV1`.
    pub fn to_fields(&self) -> Value {
        let fields = self
            .branches
            .iter()
            .map(|(element, branch)| {
                let mut below = branch.below.to_fields();
                if let (true, Value::Object(fields)) = (branch.member && !branch.below.is_empty(), &mut below) {
                    fields.insert(".".to_owned(), Value::Object(Map::new()));
                }
                (element.serialize(), below)
            })
            .collect();
        Value::Object(fields)
    }
}

fn read(fields: &Value, name: &str) -> Result<Branch, FieldsError> {
    let empty = Map::new();
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => &empty,
        _ => return Err(FieldsError::NotAnObject(name.to_owned())),
    };
    let mut branch = Branch::default();
    for (key, value) in fields {
        if key == "." {
            branch.member = true;
            continue;
        }
        match Element::parse(key) {
            Ok(element) => branch.below.graft(element, read(value, key)?),
            Err(ElementError::Unknown) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // A field with nothing below is named for its own sake.
    branch.member |= branch.below.is_empty();
    Ok(branch)
}
