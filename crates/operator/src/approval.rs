//! The controller of Approvals: it tells each what it did, or why it did nothing.

use std::sync::Arc;

use knoll_api::{Approval, Run};
use knoll_core::{approval, events};
use kube::{
    Resource, ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

use crate::{
    context::Context,
    controller::{Error, Published},
};

/// Tells one Approval.
pub async fn reconcile(approval: Arc<Approval>, context: Arc<Context>) -> Result<Action, Error> {
    if context.approvals.is_stale(&approval) {
        return Ok(Action::await_change());
    }
    let namespace = approval.namespace().unwrap_or_default();
    let run: Option<Arc<Run>> = context.caches.runs.get(&ObjectRef::new(&approval.spec.run).within(&namespace));
    if let Some(status) = approval::effect(&approval, run.as_deref(), context.now()) {
        let api = context.api::<Approval>(&namespace);
        let told = context.approvals.publish(&api, &approval, approval.status.as_ref(), &status).await?;
        if told == Published::Written
            && let Some(event) = events::of_approval(&status)
        {
            context.events.tell(event, approval.object_ref(&()));
        }
    }
    Ok(Action::await_change())
}
