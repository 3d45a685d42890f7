//! What the digest of a review covers, for the people who decide on it. Pure.

use knoll_api::{
    names::pod,
    run::{FrozenJobSummary, RunStatus},
};

/// Labels and values, in the order in which they are shown. Empty for a run that has no frozen job.
#[must_use]
pub fn fields(status: &RunStatus) -> Vec<(&'static str, String)> {
    let Some(job) = &status.job else { return Vec::new() };
    let plan = status.plan.clone().unwrap_or_default();
    vec![
        ("Plan bytes", plan.digest.unwrap_or_default()),
        ("Plan text", plan.text_digest.unwrap_or_default()),
        ("Frozen job", job.digest.clone()),
        ("Image", image(job)),
        ("Accounts", accounts(job)),
        ("Hooks", job.hooks.join(", ")),
        ("Uses", job.references.join(", ")),
    ]
}

fn image(job: &FrozenJobSummary) -> String {
    let digest = job.image_digests.get(pod::CONTAINER);
    let digest = digest.map(|image| image.rsplit_once('@').map_or(image.as_str(), |(_, digest)| digest));
    match digest {
        Some(digest) if !job.image.contains(digest) => format!("{} ({digest})", job.image),
        _ => job.image.clone(),
    }
}

fn accounts(job: &FrozenJobSummary) -> String {
    let name = |account: &Option<String>| account.clone().unwrap_or_else(|| "default without a token".to_owned());
    let (plan, apply) = (name(&job.plan_service_account), name(&job.apply_service_account));
    if plan == apply { plan } else { format!("{plan} (plan), {apply} (apply)") }
}
