//! The manifests that tests create.

/// A module with one resource, whose output is the variable `word`.
pub const MODULE: &str = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\noutput \"word\" { value = terraform_data.a.output }\n";

/// A Workspace with default settings.
#[must_use]
pub fn workspace(name: &str) -> String {
    format!("apiVersion: knoll.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: {name}}}\nspec: {{}}\n")
}

/// A Run that applies `source` (YAML flow style) with its own name as the variable `word`.
#[must_use]
pub fn run(name: &str, workspace: &str, source: &str) -> String {
    format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {{name: {name}}}\nspec:\n  workspace: {workspace}\n  operation: apply\n  variables: {{word: {name}}}\n  source: {source}\n"
    )
}

/// The source of a module with one file.
#[must_use]
pub fn inline(module: &str) -> String {
    format!("{{inline: {{main.tf: {module:?}}}}}")
}

#[must_use]
pub fn approval(name: &str, run: &str, digest: &str, decision: &str, by: &str) -> String {
    format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Approval\nmetadata: {{name: {name}}}\nspec: {{run: {run}, digest: \"{digest}\", decision: {decision}, by: \"{by}\"}}\n"
    )
}
