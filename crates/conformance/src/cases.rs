//! The cases of `crates/api/cases` as scenarios: both servers must give the same response to each of them.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scenario::{Scenario, Step};

/// One case. Other tests check whether it is accepted; here both servers must agree.
#[derive(Deserialize)]
struct Case {
    object: Option<Value>,
    create: Option<Value>,
    update: Option<Value>,
}

pub fn load(folder: &Path) -> anyhow::Result<Vec<Scenario>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot list the cases in `{}`", folder.display()))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .collect();
    files.sort();
    let folders = knoll_api::crds().into_iter().map(|crd| {
        let plural = crd.spec.names.plural;
        let folder = if crd.spec.scope == "Cluster" { plural } else { format!("namespaces/${{ns}}/{plural}") };
        (crd.spec.names.kind, folder)
    });
    let folders: Vec<(String, String)> = folders.collect();
    let mut all = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let cases: Vec<Case> =
            serde_saphyr::from_str(&text).with_context(|| format!("`{}` is not a list of cases", path.display()))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let steps = cases.iter().flat_map(|case| steps(case, &folders)).collect();
        all.push(Scenario {
            scenario: format!("the cases of {stem}"),
            with: vec!["knoll".to_owned()],
            vars: [].into(),
            steps,
            file: "cases".to_owned(),
        });
    }
    Ok(all)
}

/// The requests of a case. `folders` are the paths of the kinds below their group and version.
fn steps(case: &Case, folders: &[(String, String)]) -> Vec<Step> {
    let Some(first) = case.object.as_ref().or(case.create.as_ref()) else { return Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let folder = folders.iter().find(|(kind, _)| first["kind"] == kind.as_str()).map_or("", |(_, folder)| folder);
    let root = format!("/apis/{}/{folder}", text(&first["apiVersion"]));
    let named = format!("{root}/{}", text(&first["metadata"]["name"]));
    let step = |request: String, body: Option<&Value>| Step {
        request: Some(request),
        text: body.map(Value::to_string),
        media: body.map(|_| "application/json".to_owned()),
        save: if body.is_some() {
            [("rv".to_owned(), "/metadata/resourceVersion".to_owned())].into()
        } else {
            [].into()
        },
        ..Step::default()
    };
    let mut steps = vec![step(format!("POST {root}"), Some(first))];
    if let Some(update) = &case.update {
        let mut update = update.clone();
        update["metadata"]["resourceVersion"] = json!("${rv}");
        steps.push(step(format!("PUT {named}"), Some(&update)));
    }
    steps.push(step(format!("DELETE {named}"), None));
    steps
}
