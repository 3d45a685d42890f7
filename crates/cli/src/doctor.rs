//! `knoll doctor`: checks the cluster, the user's permissions and this machine, and says how to fix what is wrong.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_api::names::GROUP;
use kube::Api;
use kube::api::PostParams;

use crate::connect::{Connection, Explain};
use crate::output::table::{Cell, Table, Tone};
use crate::output::{self, Format, OutputArgs};
use crate::version;
use crate::workspace::Session;

/// The arguments of `knoll doctor`.
#[derive(clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of one check.
struct Finding {
    subject: &'static str,
    state: State,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// Usable with restrictions.
    Poor,
    Bad,
}

impl State {
    fn cell(self) -> Cell {
        match self {
            State::Good => Cell::new(self.word(), Tone::Good),
            State::Poor => Cell::new(self.word(), Tone::Waits),
            State::Bad => Cell::new(self.word(), Tone::Bad),
        }
    }

    fn word(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Poor => "!",
            State::Bad => "bad",
        }
    }
}

/// What a user may want to do, the role for it, and the permissions that it takes.
const NEEDS: [(&str, &str, &[(&str, &str, &str, &str)]); 4] = [
    (
        "start runs",
        "knoll-user",
        &[
            ("create", GROUP, "runs", ""),
            ("create", "", "configmaps", ""),
            ("create", "", "secrets", ""),
            ("get", GROUP, "workspaces", ""),
            ("get", "", "pods", "log"),
            ("create", "", "pods", "attach"),
        ],
    ),
    ("create workspaces", "knoll-editor", &[("create", GROUP, "workspaces", "")]),
    ("approve plans", "knoll-approver", &[("create", GROUP, "approvals", "")]),
    ("read states", "knoll-user", &[("get", "", "secrets", "")]),
];

/// Runs all checks. The exit code is 1 when runs cannot work.
pub async fn run(args: DoctorArgs, outer: &Connection) -> Result<ExitCode> {
    let connection = args.connection.or(outer);
    let mut findings = vec![finding("knoll", State::Good, format!("version {}", env!("CARGO_PKG_VERSION")))];
    cluster(&connection, &mut findings).await;
    findings.push(tool());
    match args.output.output {
        Format::Table | Format::Wide => output::print(&table(&findings).to_string())?,
        Format::Name => {
            let names = findings.iter().filter(|finding| finding.state != State::Good);
            names.map(|finding| format!("{}\n", finding.subject)).try_for_each(|name| output::print(&name))?;
        }
        format => {
            let checks = findings.iter().map(|Finding { subject, state, text }| {
                serde_json::json!({"check": subject, "state": state.word(), "finding": text})
            });
            output::value(&serde_json::json!({"checks": checks.collect::<Vec<_>>()}), format)?;
        }
    }
    let broken = findings.iter().any(|finding| finding.state == State::Bad);
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["CHECK", "", "FINDING"]);
    for Finding { subject, state, text } in findings {
        let mut lines = text.lines();
        table.row([Cell::from(*subject), state.cell(), lines.next().unwrap_or_default().into()]);
        lines.for_each(|line| table.row(["".into(), "".into(), line.trim().into()]));
    }
    table
}

async fn cluster(connection: &Connection, findings: &mut Vec<Finding>) {
    let server = match version::server(connection).await {
        Ok(server) => server,
        Err(error) => {
            findings.push(finding("cluster", State::Bad, format!("{error:#}")));
            return;
        }
    };
    let text = format!("Kubernetes {} at {}", server.kubernetes, server.address);
    findings.push(match server.kubernetes.require() {
        Ok(()) => finding("cluster", State::Good, text),
        Err(error) => finding("cluster", State::Bad, error.to_string()),
    });
    findings.extend(server.knoll.as_deref().map(same_version));
    let Ok(session) = Session::find(connection).await else { return };
    findings.push(kinds(&session, server.kinds.is_some()).await);
    // Many users may not read namespaces. Their permissions are the answer then.
    if let Ok(None) = Api::<Namespace>::all(session.cluster.client.clone()).get_opt(&session.namespace).await {
        let text = format!("`{0}` does not exist; `kubectl create namespace {0}` creates it", session.namespace);
        findings.push(finding("namespace", State::Bad, text));
        return;
    }
    for (what, role, needs) in NEEDS {
        findings.push(access(&session, what, role, needs).await);
    }
}

/// Compares the installed version with this binary's.
fn same_version(installed: &str) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    if installed == own {
        return finding("server", State::Good, format!("Knoll {installed}, same as the client"));
    }
    let text = format!(
        "Knoll {installed}, but the client is {own}; use the same version, or run `knoll install` to upgrade the cluster"
    );
    finding("server", State::Poor, text)
}

/// Compares the installed CRDs with those of this binary.
async fn kinds(session: &Session, installed: bool) -> Finding {
    if !installed {
        return finding("kinds", State::Bad, "Knoll is not installed in this cluster; run `knoll install`".to_owned());
    }
    let api: Api<CustomResourceDefinition> = Api::all(session.cluster.client.clone());
    let mut old = Vec::new();
    let wanted = knoll_api::crds();
    for crd in &wanted {
        let name = crd.metadata.name.clone().unwrap_or_default();
        match api.get_opt(&name).await {
            Ok(Some(found)) if schema(&found) == schema(crd) => {}
            Ok(_) => old.push(name),
            // Using the kinds does not require permission to read their definitions.
            Err(_) => {
                return finding(
                    "kinds",
                    State::Good,
                    "installed; you are not allowed to read the CRDs to compare them".to_owned(),
                );
            }
        }
    }
    if old.is_empty() {
        return finding("kinds", State::Good, format!("all {} CRDs match this version", wanted.len()));
    }
    let text = format!("{} differ from this version; run `knoll install` of the same version", old.join(", "));
    finding("kinds", State::Poor, text)
}

/// The schema of a kind, without fields that the API server adds.
fn schema(crd: &CustomResourceDefinition) -> Option<serde_json::Value> {
    let version = crd.spec.versions.first()?;
    serde_json::to_value(version.schema.as_ref()?).ok()
}

async fn access(session: &Session, what: &str, role: &str, needs: &[(&str, &str, &str, &str)]) -> Finding {
    let api: Api<SelfSubjectAccessReview> = Api::all(session.cluster.client.clone());
    let mut missing = Vec::new();
    for (verb, group, resource, subresource) in needs {
        let attributes = ResourceAttributes {
            namespace: Some(session.namespace.clone()),
            verb: Some((*verb).to_owned()),
            group: Some((*group).to_owned()),
            resource: Some((*resource).to_owned()),
            subresource: (!subresource.is_empty()).then(|| (*subresource).to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        match api
            .create(&PostParams::default(), &review)
            .await
            .explain(&session.cluster, "cannot check your permissions")
        {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => {
                missing.push(format!("{verb} {resource}{}{subresource}", if subresource.is_empty() { "" } else { "/" }))
            }
            Err(error) => return finding("access", State::Poor, format!("{error:#}")),
        }
    }
    if missing.is_empty() {
        return finding("access", State::Good, format!("you can {what} in namespace `{}`", session.namespace));
    }
    let text = format!(
        "you cannot {what} in namespace `{}` without the role `{role}`, missing permissions: {}",
        session.namespace,
        missing.join(", ")
    );
    finding("access", State::Poor, text)
}

/// Checks for terraform or tofu, which only `knoll fmt` and the embedded cluster need.
fn tool() -> Finding {
    for tool in ["terraform", "tofu"] {
        let asked = Command::new(tool)
            .arg("version")
            .env("CHECKPOINT_DISABLE", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        if let Ok(answer) = asked
            && answer.status.success()
        {
            let text = String::from_utf8_lossy(&answer.stdout).lines().next().unwrap_or_default().to_owned();
            return finding("terraform", State::Good, format!("{text} on this machine"));
        }
    }
    let text =
        "neither terraform nor tofu is on the PATH; `knoll fmt` and the embedded cluster (`knoll up`) need one of them";
    finding("terraform", State::Poor, text.to_owned())
}

fn finding(subject: &'static str, state: State, text: String) -> Finding {
    Finding { subject, state, text }
}
