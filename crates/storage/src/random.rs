//! Random values that nobody can guess.

use knoll_api::Digest;

use crate::error::Error;

/// A random value in the form of a digest.
pub(crate) fn digest() -> Result<Digest, Error> {
    let random = ring::rand::generate::<[u8; 32]>(&ring::rand::SystemRandom::new());
    let random = random.map_err(|_| Error::Internal("the system has no random numbers".to_owned()))?;
    Ok(Digest::from_hash(random.expose()))
}
