//! What the digest of a review covers, for the people who decide on it.

use knoll_api::run::{FrozenJobSummary, RunStatus};

use crate::output::visible_line;

/// Labels and values, in the order in which they are shown. Empty for a run that has no frozen job.
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

/// The same as text, for a terminal.
pub fn text(status: &RunStatus) -> String {
    let shown = fields(status).into_iter().filter(|(_, value)| !value.is_empty());
    let line = |(label, value): (&str, String)| format!("  {:<12}{}\n", format!("{label}:"), visible_line(&value));
    let lines: String = shown.map(line).collect();
    if lines.is_empty() { lines } else { format!("The decision covers:\n{lines}") }
}

fn image(job: &FrozenJobSummary) -> String {
    let digest = job.image_digests.get(knoll_api::names::pod::CONTAINER);
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

#[cfg(test)]
mod tests {
    use knoll_api::run::PlanSummary;

    use super::*;

    #[test]
    fn what_is_covered_is_shown_in_plain_words() {
        let job = FrozenJobSummary {
            digest: "sha256:job".to_owned(),
            image: "terraform:1".to_owned(),
            image_digests: [("runner".to_owned(), "docker.io/terraform@sha256:i".to_owned())].into(),
            plan_service_account: Some("reader".to_owned()),
            hooks: vec!["pre-apply/check".to_owned()],
            ..FrozenJobSummary::default()
        };
        let (digest, text_digest) = (Some("sha256:plan".to_owned()), Some("sha256:text".to_owned()));
        let plan = Some(PlanSummary { digest, text_digest, ..PlanSummary::default() });
        let status = RunStatus { plan, job: Some(job), ..RunStatus::default() };
        let expect = "The decision covers:
  Plan bytes: sha256:plan
  Plan text:  sha256:text
  Frozen job: sha256:job
  Image:      terraform:1 (sha256:i)
  Accounts:   reader (plan), default without a token (apply)
  Hooks:      pre-apply/check
";
        assert_eq!(text(&status), expect);
        assert_eq!(text(&RunStatus::default()), "");
    }
}
