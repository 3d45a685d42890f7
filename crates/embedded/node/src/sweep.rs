//! Clearing away pods that were deleted while no node ran.

use std::collections::HashSet;
use std::sync::Arc;

use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use super::Context;
use super::container::{Event, Recovered, Shim};
use super::folder::PodFolder;

/// The pods on disk that are not among those `known`, by uid. Asked before a new pod may have a folder: later, it would
/// be taken for one that was deleted.
pub fn strays(context: &Context, known: &HashSet<String>) -> Vec<String> {
    let entries = std::fs::read_dir(&context.pods).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|uid| !known.contains(uid)).collect()
}

/// Ends and removes pods on disk, by uid.
pub async fn sweep(context: Arc<Context>, strays: Vec<String>) {
    for uid in strays {
        let folder = PodFolder::new(&context.pods, &uid);
        for instance in folder.instances() {
            let (sender, mut events) = mpsc::unbounded_channel();
            let listen = move |event| {
                let _ = sender.send(event);
            };
            if let Ok(Recovered::Alive(shim)) = Shim::find(&instance, listen).await {
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
