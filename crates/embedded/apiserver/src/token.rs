//! Service-account tokens: signed by the server's own key, bound to an audience, a time and, if asked, a pod.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

/// The issuer, and the audience of tokens that are for the API server itself.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// Signs and checks tokens with one key.
pub struct Tokens {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

/// What a token says.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Claims {
    /// Whom the token is for.
    pub aud: Vec<String>,
    /// Seconds since the epoch when it ends.
    pub exp: i64,
    /// When it was issued.
    pub iat: i64,
    pub iss: String,
    /// The token's own id.
    pub jti: String,
    pub nbf: i64,
    /// `system:serviceaccount:NAMESPACE:NAME`
    pub sub: String,
    /// What the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Binding,
}

/// What a token is bound to: it ends with any of these objects.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Binding {
    /// The service account's namespace.
    pub namespace: String,
    pub serviceaccount: Bound,
    /// The pod that carries the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Bound>,
    /// The secret that carries the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Bound>,
}

/// An object by name and UID.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Bound {
    pub name: String,
    pub uid: String,
}

/// The key could not be used or made.
#[derive(Debug, thiserror::Error)]
#[error("the service-account signing key is not usable: {0}")]
pub struct KeyError(String);

impl Tokens {
    /// A new key in PKCS#8 form.
    pub fn generate() -> Result<Vec<u8>, KeyError> {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map(|document| document.as_ref().to_vec())
            .map_err(|e| KeyError(e.to_string()))
    }

    /// Signs with that key.
    pub fn new(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|e| KeyError(e.to_string()))?;
        Ok(Self { pair, random })
    }

    /// The audience of tokens that are for the API server.
    #[allow(clippy::unused_self, reason = "a server's tokens have one audience, whatever it will be called")]
    pub(crate) fn api_audience(&self) -> &'static str {
        ISSUER
    }

    /// A token that says that.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let header = part(br#"{"alg":"ES256","typ":"JWT"}"#);
        let body = part(&serde_json::to_vec(claims).map_err(|e| KeyError(e.to_string()))?);
        let signed = format!("{header}.{body}");
        let signature = self.pair.sign(&self.random, signed.as_bytes()).map_err(|e| KeyError(e.to_string()))?;
        Ok(format!("{signed}.{}", part(signature.as_ref())))
    }

    /// What a token says, if this key signed it and it is valid at that time (seconds since the epoch).
    pub(crate) fn verify(&self, token: &str, now: i64) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (_, body) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        (claims.iss == ISSUER && claims.nbf <= now && now < claims.exp).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_token_is_good_only_unchanged_in_its_time_and_from_its_key() {
        let tokens = Tokens::new(&Tokens::generate().unwrap()).unwrap();
        let claims = Claims {
            aud: vec!["knoll-hub".into()],
            exp: 200,
            iat: 100,
            iss: ISSUER.into(),
            jti: "j".into(),
            nbf: 100,
            sub: "system:serviceaccount:a:b".into(),
            kubernetes: Binding {
                namespace: "a".into(),
                serviceaccount: Bound { name: "b".into(), uid: "u".into() },
                pod: None,
                secret: None,
            },
        };
        let token = tokens.sign(&claims).unwrap();
        assert_eq!(tokens.verify(&token, 150), Some(claims));
        assert_eq!(tokens.verify(&token, 99), None);
        assert_eq!(tokens.verify(&token, 200), None);
        assert_eq!(tokens.verify(&token.replacen("ey", "eY", 1), 150), None);
        let other = Tokens::new(&Tokens::generate().unwrap()).unwrap();
        assert_eq!(other.verify(&token, 150), None);
        for bad in ["", ".", "..", "a.b.c", &token[..token.len() - 4]] {
            assert_eq!(tokens.verify(bad, 150), None, "{bad}");
        }
    }
}
