//! What is to be done about each message of a batch, before anything is done.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use futures_util::FutureExt;
use tracing::Instrument;

use super::{
    Consumer, Message,
    disposition::{Disposition, Tries},
    feed::Received,
};
use crate::{
    function::RunError,
    key::{FoundKey, Tenant},
    time::Instant,
};

/// A message of the batch, and what is to be done about it.
pub(super) struct Planned {
    pub(super) received: Received,
    pub(super) plan: Plan,
}

pub(super) enum Plan {
    /// Run it, behind others of this lane.
    Run { key: FoundKey, lane: String, message: Arc<Message> },
    /// There is nothing to run.
    See(Disposition),
    /// It is from another source: it is handed back as it is.
    Foreign,
}

impl Planned {
    /// The lane in which it runs, one after another: its source's, or that of its tenant and key. Others have a lane of their own.
    pub(super) fn lane(&self) -> Option<String> {
        match (&self.received.lane, &self.plan) {
            (Some(lane), _) => Some(lane.clone()),
            (None, Plan::Run { lane, .. }) => Some(lane.clone()),
            (None, _) => None,
        }
    }
}

impl Consumer {
    /// What is to be done about a message.
    pub(super) async fn plan(&self, received: Received, until: Instant) -> Planned {
        // What a sender wrote must not end the batch.
        let plan = AssertUnwindSafe(self.planned(&received, until)).catch_unwind();
        let plan = plan.instrument(self.span(&received.message)).await.unwrap_or_else(|_| {
            tracing::error!(message_id = received.message.id, "a message panics before it is run");
            let ended = Err(RunError::NotExecuted(None));
            Plan::See(Disposition::of(&ended, self.tries(&received.message, None)))
        });
        Planned { received, plan }
    }

    /// So that lines about a message, such as the guard's, which have the key's hash, can be found by it. Its fields have the
    /// [names of OpenTelemetry].
    ///
    /// [names of OpenTelemetry]: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
    pub(super) fn span(&self, message: &Message) -> tracing::Span {
        tracing::info_span!(
            "message",
            "otel.kind" = "consumer",
            "messaging.system" = self.feed.system(),
            "messaging.operation.name" = "process",
            "messaging.destination.name" = &*self.name,
            "messaging.message.id" = message.id.as_deref()
        )
    }

    pub(super) fn tries(&self, message: &Message, attempts: Option<u32>) -> Tries {
        let receives = self.feed.counts_receives().then_some(message.receives);
        Tries { attempts, max_attempts: self.max_attempts, receives }
    }

    async fn planned(&self, received: &Received, until: Instant) -> Plan {
        let Received { message, foreign, unusable, .. } = received;
        if let Some(found) = foreign {
            let (id, noun, expected) = (message.id.as_deref(), self.feed.noun(), &*self.name);
            tracing::error!(
                message_id = id,
                found,
                expected,
                "a message is from another {noun}: it is handed back"
            );
            return Plan::Foreign;
        }
        if let Some(disposition) = unusable {
            return Plan::See(disposition.clone());
        }
        let message = match self.open(message.clone(), until).await {
            Ok(Some(message)) => message,
            Ok(None) => return Plan::See(Disposition::Done),
            Err(error) => {
                return Plan::See(Disposition::of(&Err(error), self.tries(message, None)));
            }
        };
        match self.key.of_message(&message) {
            Ok(key) => {
                // A tenant's message does not wait for another tenant's of the same key. A panic is that of its function, which asks again.
                let tenant = self.tenant.as_ref();
                let tenant = tenant.map(|of| panic::catch_unwind(AssertUnwindSafe(|| of(&message))));
                let tenant = tenant.and_then(Result::ok).flatten();
                let lane = format!("key {}#{}", tenant.as_ref().map_or("", Tenant::as_str), key.key.as_str());
                Plan::Run { key, lane, message: message.into() }
            }
            Err(reason) => Plan::See(Disposition::Dead(reason)),
        }
    }
}
