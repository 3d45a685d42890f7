//! Clearing away pods that were deleted while no node ran.

use std::collections::HashSet;
use std::sync::Arc;

use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use super::Context;
use super::container::{Event, Found, Shim};
use super::folder::PodFolder;

/// Ends and removes every pod on disk that is not one of `known`, by uid.
pub async fn sweep(context: Arc<Context>, known: HashSet<String>) {
    let Ok(entries) = std::fs::read_dir(&context.pods) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(uid) = entry.file_name().into_string() else {
            continue;
        };
        if known.contains(&uid) {
            continue;
        }
        let folder = PodFolder::new(&context.pods, &uid);
        for instance in folder.instances() {
            let (sender, mut events) = mpsc::unbounded_channel();
            let listen = move |event| {
                let _ = sender.send(event);
            };
            if let Ok(Found::Alive(shim)) = Shim::find(&instance, listen).await {
                shim.signal(Signal::SIGKILL);
                while matches!(events.recv().await, Some(Event::Started(_))) {}
            }
        }
        match folder.remove().await {
            Ok(()) => tracing::info!(uid, "cleared away a pod that was deleted while no node ran"),
            Err(error) => {
                tracing::warn!(uid, %error, "a deleted pod's folder could not be removed")
            }
        }
    }
}
