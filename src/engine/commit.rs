//! Domain writes that commit with an operation's completion.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::{Change, Execution, Executor};
use crate::{
    domain::{DomainWrite, DomainWriteError, IfRefused},
    record::{Answer, AnswerKind, Transition},
    store::{Companion, OutboxMessage},
    telemetry::Count,
    time::{Instant, Timestamp},
};

/// A transition with the writes that commit with it, if it completes its operation.
pub(crate) fn completing(mut next: Transition, writes: &[DomainWrite], now: Timestamp) -> Change {
    if writes.is_empty() || !next.commits() {
        return next.into();
    }
    with_writes(next, writes, now)
}

/// A transition with the writes that commit with it. Its record counts the messages among them.
pub(crate) fn with_writes(mut next: Transition, writes: &[DomainWrite], now: Timestamp) -> Change {
    let first = next.messages;
    let companion = |write: &DomainWrite| match write.message() {
        None => Companion::Domain(write.clone()),
        Some((topic, body)) => Companion::Message(OutboxMessage {
            key: next.key.clone(),
            created_at: next.created_at,
            sequence: next.next_message(),
            first,
            topic: topic.to_owned(),
            body: body.to_owned(),
            published_at: now,
        }),
    };
    let with = writes.iter().map(companion).collect();
    Change::with(next, with)
}

/// What it means that the writes at these places were denied. Recomputing comes first: the other refusals were computed from an
/// outdated read. If one of them has no answer, the answer of another is not the whole truth.
pub(super) fn refusal<'a>(writes: &'a [DomainWrite], denied: &[usize]) -> &'a IfRefused {
    let denied = || denied.iter().filter_map(|place| writes.get(*place)).map(|write| &write.if_refused);
    let is = |meaning: IfRefused| denied().find(|refused| **refused == meaning);
    is(IfRefused::Recompute).or(is(IfRefused::Fail)).or(denied().next()).unwrap_or(&IfRefused::Fail)
}

impl Executor {
    /// The answer with only those headers that its replays have.
    pub(super) fn as_replayed(&self, Answer { head, body }: &Answer) -> Answer {
        Answer { head: self.operation().keeps.of(head), body: body.clone() }
    }

    /// Logs and counts that writes were refused, and that no answer is set for that.
    pub(super) fn no_answer_set(&self, writes: &[DomainWrite], denied: &[usize]) {
        let denied: Vec<_> = denied.iter().filter_map(|place| writes.get(*place)).collect();
        tracing::error!(
            ?denied,
            "domain writes were refused, and no answer is set for that: nothing is committed"
        );
        Count::Denied.add(self.operation().name());
    }

    /// Logs and counts that a write was refused when the handler added it.
    pub(super) fn refused_early(&self, error: &DomainWriteError) {
        tracing::error!(%error, "a domain write was refused, but the handler has answered: nothing is committed");
        Count::Denied.add(self.operation().name());
    }

    /// The domain writes that the handler wants, computed now if it has a closure for that.
    pub(super) async fn writes(
        &self,
        execution: &Execution,
        kind: AnswerKind,
        stop_at: Instant,
    ) -> Result<Vec<DomainWrite>, ()> {
        let parts = execution.collected().parts();
        let (mut writes, compute) = parts.map_err(|error| self.refused_early(&error))?;
        let computed = match compute {
            // This is the handler's code: it may panic, or never end.
            Some(compute) => {
                let computed = AssertUnwindSafe(async move { compute().await }).catch_unwind();
                let (world, late) = (&self.engine.world, "it did not end in time");
                let computed = world.within(stop_at.since(world.instant()), computed).await;
                computed.map_or(Err(late.into()), |ended| ended.unwrap_or_else(|_| Err("it panicked".into())))
            }
            None => Ok(Vec::new()),
        };
        let records = self.engine.store.records_table();
        let added = computed.and_then(|computed| {
            Ok(computed.into_iter().try_for_each(|write| {
                write.check_answer(kind)?;
                writes.add(write, records)
            })?)
        });
        added.map(|()| writes.into_vec()).map_err(|error| {
            let error: &dyn std::error::Error = &*error;
            tracing::error!(error, "the domain writes could not be computed: nothing is committed");
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::Table;

    // T55: the answer of one refused write is not the whole truth if another one has none.
    #[test]
    fn a_refusal_has_an_answer_only_if_every_refused_write_has_one() {
        let write =
            || Table::new("accounts", "id").put(json!({ "id": 1 })).condition("attribute_not_exists(id)");
        let answered = || write().or_answer(Answer::json(409, "{}"));
        let writes = [answered(), write(), write().or_recompute()];
        for (denied, expected) in [
            (&[0][..], "answer"),
            (&[1], "none"),
            (&[0, 1], "none"),
            (&[1, 0], "none"),
            (&[2], "recompute"),
            (&[0, 1, 2], "recompute"),
            (&[], "none"),
        ] {
            let means = match refusal(&writes, denied) {
                IfRefused::Recompute => "recompute",
                IfRefused::Answer(_) => "answer",
                IfRefused::Fail => "none",
            };
            assert_eq!(means, expected, "{denied:?}");
        }
    }
}
