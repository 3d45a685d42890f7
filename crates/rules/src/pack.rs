//! The text of a pack of rules, checked against the digest that the Policy names.

use knoll_api::Digest;
use knoll_api::policy::{PackRef, RulePack};

/// Why a pack has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    #[error(
        "the ConfigMap `{namespace}/{name}` has no key `{key}`. Create it, or correct `configMap` of the pack",
        namespace = .0.namespace, name = .0.name, key = .0.key
    )]
    Missing(PackRef),
    #[error(
        "key `{key}` of the ConfigMap `{namespace}/{name}` has the digest `{found}` and not the one that the Policy names. Restore the text, or write its digest into the Policy",
        namespace = .at.namespace, name = .at.name, key = .at.key
    )]
    Changed { at: PackRef, found: String },
    #[error("it has none of `inline`, `configMap`, `git` and `oci`. Write one of them")]
    Nowhere,
}

/// The text of a pack of the cluster. `content` is what the ConfigMap has, if the pack names one.
///
/// # Errors
/// When there is none, or another one than the Policy names.
pub fn text_of(pack: &RulePack, content: Option<&str>) -> Result<String, PackError> {
    match (&pack.inline, &pack.config_map) {
        (Some(text), None) => Ok(text.clone()),
        (None, Some(at)) => {
            let text = content.ok_or_else(|| PackError::Missing(at.clone()))?;
            let found = String::from(Digest::of(text));
            if found == at.digest { Ok(text.to_owned()) } else { Err(PackError::Changed { at: at.clone(), found }) }
        }
        _ => Err(PackError::Nowhere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_digest_that_the_policy_names() {
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned();
        let at = PackRef { namespace: "n".into(), name: "c".into(), key: "k".into(), digest };
        let pack = RulePack { name: "p".into(), config_map: Some(at), ..RulePack::default() };
        assert_eq!(text_of(&pack, Some("abc")), Ok("abc".to_owned()));
        assert!(matches!(text_of(&pack, Some("abd")), Err(PackError::Changed { .. })));
        assert!(matches!(text_of(&pack, None), Err(PackError::Missing(_))));
        assert_eq!(text_of(&RulePack::default(), None), Err(PackError::Nowhere));
    }
}
