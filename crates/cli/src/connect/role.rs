//! The roles of Knoll that a refused user may ask for. Pure.

/// A role that `knoll install` creates, as far as commands of the user need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Viewer,
    User,
    Editor,
    Approver,
    Admin,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Viewer => "knoll-viewer",
            Role::User => "knoll-user",
            Role::Editor => "knoll-editor",
            Role::Approver => "knoll-approver",
            Role::Admin => "knoll-admin",
        }
    }
}

/// What to ask an administrator for after the refusal of one request of a command that needs the role `whole`. A role that
/// only grants the refused request would not be enough for the command.
pub fn ask_for(refusal: &str, whole: Role) -> String {
    if of(refusal, &["namespaces"]) {
        return "ask an administrator for the role `view` in that namespace".to_owned();
    }
    let role = match (of_request(refusal), whole) {
        (Role::Viewer, whole) => whole,
        (Role::User, Role::Editor) => Role::Editor,
        (role, _) => role,
    };
    let scope = if refusal.contains("at the cluster scope") { "by a ClusterRoleBinding" } else { "in that namespace" };
    format!("ask an administrator for the role `{}` {scope}", role.name())
}

/// The least role that grants the request.
fn of_request(refusal: &str) -> Role {
    let looks = ["get", "list", "watch"].iter().any(|verb| refusal.contains(&format!("cannot {verb} resource")));
    if looks && !of(refusal, &["secrets", "pods/attach"]) {
        Role::Viewer
    } else if of(refusal, &["approvals"]) {
        Role::Approver
    } else if of(refusal, &["policies"]) {
        Role::Admin
    } else if of(refusal, &["atoms", "atomversions", "stacks", "workspaces"]) {
        Role::Editor
    } else {
        Role::User
    }
}

fn of(refusal: &str, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| refusal.contains(&format!("resource \"{kind}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_role_is_the_least_that_the_command_needs() {
        use Role::{Approver, Editor, User, Viewer};
        let rows = [
            ("list", "runs", Viewer, "knoll-viewer"),
            // The first request of `knoll plan`, whose next one creates a Run.
            ("get", "workspaces", User, "knoll-user"),
            ("get", "stacks", Editor, "knoll-editor"),
            ("get", "runs", Approver, "knoll-approver"),
            ("create", "runs", Viewer, "knoll-user"),
            ("create", "configmaps", User, "knoll-user"),
            ("get", "secrets", Viewer, "knoll-user"),
            ("create", "secrets", Editor, "knoll-editor"),
            ("get", "pods/attach", Viewer, "knoll-user"),
            ("create", "workspaces", Viewer, "knoll-editor"),
            ("patch", "stacks", User, "knoll-editor"),
            ("create", "approvals", Viewer, "knoll-approver"),
            ("update", "policies", Viewer, "knoll-admin"),
            ("get", "namespaces", Viewer, "view"),
        ];
        for (verb, resource, whole, expect) in rows {
            let refusal =
                format!("User \"u\" cannot {verb} resource \"{resource}\" in API group \"\" in the namespace \"n\"");
            let expect = format!("ask an administrator for the role `{expect}` in that namespace");
            assert_eq!(ask_for(&refusal, whole), expect, "{verb} {resource}");
        }
        let policies = "User \"u\" cannot list resource \"policies\" in API group \"knoll.dev\" at the cluster scope";
        let expect = "ask an administrator for the role `knoll-viewer` by a ClusterRoleBinding";
        assert_eq!(ask_for(policies, Viewer), expect);
    }
}
