//! What the digest of a review covers, as text for a terminal.

use knoll_api::run::RunStatus;
use knoll_core::run::covers::fields;

use crate::output::visible_line;

/// Labels and values in lines; empty for a run that has no frozen job.
pub fn text(status: &RunStatus) -> String {
    let shown = fields(status).into_iter().filter(|(_, value)| !value.is_empty());
    let line = |(label, value): (&str, String)| format!("  {:<12}{}\n", format!("{label}:"), visible_line(&value));
    let lines: String = shown.map(line).collect();
    if lines.is_empty() {
        return lines;
    }
    let of = status.review_digest.as_ref().map(|digest| format!(" on {}", visible_line(digest))).unwrap_or_default();
    format!("The decision{of} covers:\n{lines}")
}

#[cfg(test)]
mod tests {
    use knoll_api::run::{FrozenJobSummary, PlanSummary};

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
        let review_digest = Some("sha256:review".to_owned());
        let status = RunStatus { plan, job: Some(job), review_digest, ..RunStatus::default() };
        let expect = "The decision on sha256:review covers:
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
