//! The pod that describes a stored plan for the rules of Policies.

use bytes::Bytes;
use knoll_api::Digest;
use knoll_api::run::Operation;
use knoll_api::step::{StepName, StepState};
use knoll_api::wire::{EndReason, Job, JobHook, JobVariable, Stage};

use super::hub::{Hub, job};

const MODULE: &str = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\n";
const SECRET: &str = "hunter2-and-more";
const STEPS: [StepName; 3] = [StepName::Setup, StepName::Init, StepName::Judge];

fn secret() -> Vec<JobVariable> {
    let value = SECRET.into();
    vec![JobVariable { key: "word".to_owned(), value, env: false, sensitive: true, expression: false }]
}

/// The bytes and the digest of a plan that another pod has made.
async fn planned() -> (Bytes, Option<String>) {
    let steps = [StepName::Setup, StepName::Init, StepName::Plan];
    let hub =
        Hub::start(Job { variables: secret(), ..job(Operation::Apply, &steps) }, &[("main.tf", MODULE)], None, None)
            .await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    let plan = hub.told.lock().unwrap().plan.clone().unwrap();
    (plan, hub.last_report().plan.unwrap().digest)
}

/// A job with everything of a user's that could stand in the way.
fn judge(plan_digest: Option<String>) -> Job {
    let hook = JobHook {
        name: "hook".to_owned(),
        step: StepName::Init,
        script: "exit 1".to_owned(),
        container: None,
        env: Default::default(),
        timeout_seconds: None,
        on_failure: Default::default(),
    };
    Job {
        stage: Stage::Judge,
        judged: true,
        plan_digest,
        variables: secret(),
        variable_files: [("own.tfvars".to_owned(), "no {".to_owned())].into(),
        args: vec!["-no-such-flag".to_owned()],
        targets: vec!["no.such".to_owned()],
        hooks: vec![hook],
        ..job(Operation::Apply, &STEPS)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_plan_is_described_without_anything_of_its_user() {
    let (plan, digest) = planned().await;
    // The module would fail each command of terraform.
    let hub = Hub::start(judge(digest.clone()), &[("main.tf", "no {")], None, Some(plan)).await;
    assert_eq!(hub.run().await.code, 0, "{}", hub.log());
    let report = hub.last_report();
    let summary = report.plan.unwrap();
    assert_eq!((summary.add, summary.digest, summary.changes), (1, digest, true));
    let states: Vec<_> = report.steps.iter().map(|step| (step.name, step.state)).collect();
    assert_eq!(states, STEPS.map(|step| (step, StepState::Succeeded)));
    assert_eq!(report.bundle, None);
    let text = {
        let told = hub.told.lock().unwrap();
        assert_eq!(told.plan_json.as_ref().unwrap()["resource_changes"][0]["address"], "terraform_data.a");
        assert!(told.states.is_empty() && told.lock.is_none());
        told.plan_text.clone().unwrap()
    };
    assert!(text.contains("terraform_data.a will be created") && !text.contains(SECRET), "{text}");
    assert_eq!(summary.text_digest, Some(Digest::of(&text).to_string()));
    assert!(hub.log().contains("Policy `p` warns") && !hub.log().contains(SECRET), "{}", hub.log());
    let files = ["module/main.tf", "module/knoll_override.tf.json"];
    assert!(files.iter().all(|name| !hub.work_dir().join(name).exists()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_described_fails() {
    let (plan, digest) = planned().await;
    let mut other = plan.to_vec();
    other[10] ^= 1;
    let hub = Hub::start(judge(digest), &[], None, Some(other.into())).await;
    assert_eq!(hub.run().await.reason, Some(EndReason::DigestMismatch));

    let nonsense = Bytes::from_static(b"nonsense");
    let digest = Some(Digest::of(&nonsense).to_string());
    let hub = Hub::start(judge(digest), &[], None, Some(nonsense)).await;
    let message = hub.run().await.message.unwrap();
    assert!(message.contains("the stored plan is not one that terraform or tofu made"), "{message}");
    assert!(hub.told.lock().unwrap().plan_json.is_none());
}
