//! Rules in CEL that come in the files of packs.

use knoll_api::policy::{PlanRule, RulePack};
use serde::Deserialize;

use crate::request::{Finding, Pack, RuleSet};

/// The content of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CelFile {
    rules: Vec<PlanRule>,
}

/// Moves the rules in CEL from the packs to the rules of the Policy, and returns the files that cannot be read.
pub fn take_cel(set: &mut RuleSet) -> Vec<Finding> {
    let mut failed = Vec::new();
    set.packs.retain_mut(|pack| {
        let is_cel = |name: &String| name.ends_with(RulePack::CEL);
        let (cel, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pack.files).into_iter().partition(|(name, _)| is_cel(name));
        pack.files = others.into_iter().collect();
        for (name, text) in &cel {
            match rules(pack, text) {
                Ok(rules) => set.rules.extend(rules),
                Err(why) => failed.push(Finding::failure(&pack.name, format!("`{name}`: {why}"))),
            }
        }
        cel.is_empty() || !pack.files.is_empty()
    });
    failed
}

/// The rules of a file, named after their pack.
fn rules(pack: &Pack, text: &str) -> Result<Vec<PlanRule>, String> {
    let file: CelFile = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.to_string();
        format!("it is no list `rules` of rules in CEL: {}", error.lines().next().unwrap_or_default())
    })?;
    if file.rules.is_empty() {
        return Err("it has no rules, so it judges nothing".to_owned());
    }
    let named = |rule: PlanRule| PlanRule { name: format!("{}/{}", pack.name, rule.name), ..rule };
    Ok(file.rules.into_iter().map(named).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn taken(files: &[(&str, &str)]) -> (Vec<String>, usize, Vec<String>) {
        let files: BTreeMap<_, _> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let pack = Pack { name: "p".into(), files, packages: Vec::new() };
        let mut set = RuleSet { packs: vec![pack], ..RuleSet::default() };
        let failed = take_cel(&mut set).into_iter().map(|found| found.message).collect();
        (set.rules.into_iter().map(|rule| rule.name).collect(), set.packs.len(), failed)
    }

    #[test]
    fn files_of_cel_are_rules_and_the_others_stay() {
        let cel = "rules:\n- {name: a, action: Warn, find: 'true', message: m}\n";
        assert_eq!(taken(&[("x.cel.yaml", cel)]), (vec!["p/a".to_owned()], 0, vec![]));
        assert_eq!(taken(&[("x.cel.yaml", cel), ("y.rego", "package y")]), (vec!["p/a".to_owned()], 1, vec![]));
        assert_eq!(taken(&[("y.rego", "package y")]), (vec![], 1, vec![]));
        // It fails later: it has no sets.
        assert_eq!(taken(&[]), (vec![], 1, vec![]));
    }

    #[test]
    fn what_is_no_list_of_rules_fails() {
        for text in [
            "",
            "x",
            "rules: []",
            "rules: {}",
            "rules: [{name: a}]",
            "rules: [{name: a, action: Allow, find: 'true', message: m}]",
            "rules: [{name: a, action: Warn, find: 'true', message: m}]\nmore: 1",
        ] {
            let (rules, _, failed) = taken(&[("x.cel.yaml", text)]);
            assert!(rules.is_empty() && failed.len() == 1, "{text}: {rules:?} {failed:?}");
            assert!(failed[0].starts_with("`x.cel.yaml`: it "), "{failed:?}");
        }
    }
}
