//! Finds out what became of operations whose outcome is unknown, and settles them.
//!
//! 1. There are three sources, in this order of authority: the provider's report ([`reported`](Reconciliation::reported), by
//!    webhook); the provider's answer to a question ([`poll`](Reconciliation::poll), when `reconcile_at` is due); and, after a
//!    bounded number of questions, an operator.
//! 2. The first source settles the record by compare-and-set. A later one finds it settled.
//! 3. An unprompted report of a provider is checked against the record in any state ([`ProviderReport`]). A contradiction is
//!    escalated.
//! 4. Once the provider has reported an effect, only proof of that effect, or an operator, settles the record.
//! 5. An outcome that no question settles is escalated: its record says so and why, and each poll counts it until it is settled.
//!
//! It runs no operation: an operation that was not executed runs when its client retries.
//!
//! ```
//! use lambda_idempotency::{async_trait, reconcile::{Finding, Question, Reconciler}, record::Answer};
//!
//! struct Payments;
//!
//! #[async_trait]
//! impl Reconciler for Payments {
//!     async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
//!         let key = question.downstream_key("charge");
//!         // Ask your provider about `key`. Here it says:
//!         let charge = Some(format!("{{\"id\":\"{key}\"}}"));
//!         Ok(match charge {
//!             Some(body) => Finding::Executed(Answer::json(201, body)),
//!             None => Finding::NotFound,
//!         })
//!     }
//! }
//! ```

mod ask;
mod deferred;
mod listen;
mod poll;
mod provider_report;
mod reconciliation;
mod turns;

use std::error::Error;

use async_trait::async_trait;
use serde::Serialize;

use crate::{
    domain::DomainWrite,
    json::{self, JsonError},
    key::{RecordKey, Tenant},
    record::{Answer, Record},
};

pub use poll::Polled;
pub use protocol::learned::ReconcileOutcome;
pub use provider_report::ProviderReport;
pub use reconciliation::Reconciliation;

/// Asks the provider what became of an operation. Each operation has its reconciler.
///
/// It does not see the request, of which only a fingerprint is kept: see [`Question`]. What it returns must be of the kind that the operation's
/// callers read: see [`Finding::Executed`].
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// Asks about one operation. It must be idempotent: it is called any number of times, also concurrently.
    ///
    /// # Errors
    /// If the provider does not answer. The question is asked again later, as after [`Finding::AskAgain`].
    async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>>;
}

/// A question about one operation: who asked for it, under which key, and how far it got.
///
/// The request is not in it, because its body is not kept. An answer, rows and messages are made of what the provider returns for the
/// [downstream key](Self::downstream_key). So a handler sends the provider what they need, or keeps it before: in a row of its own, or in a phase.
#[derive(Clone, Debug)]
pub struct Question {
    record: Record,
}

impl Question {
    /// The tenant whose operation it is.
    pub fn tenant(&self) -> &Tenant {
        self.record.key.tenant()
    }

    /// Tenant, operation and key.
    pub fn record_key(&self) -> &RecordKey {
        &self.record.key
    }

    /// The key that the handler passed to the downstream service that it called in this `phase`.
    pub fn downstream_key(&self, phase: &str) -> String {
        self.record.key.downstream_key(&self.record.fingerprint, phase)
    }

    /// The record as it was when the question was asked.
    pub fn record(&self) -> &Record {
        &self.record
    }
}

/// What is known of an operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// It was executed, and its callers get this answer. If they send requests: [`Answer::json`] or [`Answer::http`]. If they call a function,
    /// also by messages: [`Answer::payload`] with what the function returns, or [`Answer::refusal`].
    ///
    /// An answer of the other [kind](crate::record::AnswerKind) completes nothing. It still proves the effect, and is escalated.
    Executed(Answer),
    /// It was executed, and its callers get this answer, as after [`Executed`](Self::Executed). The reconciler does not see the request: it makes
    /// the writes of what the provider knows. These domain writes commit with the completion: those that its handler
    /// would have made. Write without a condition, or with one that the handler's own row meets, because the worker may have
    /// written it. A refused write is escalated.
    ExecutedWith(Answer, Vec<DomainWrite>),
    /// This phase of an operation that resumes was executed. The next retry uses the result when it gets there.
    PhaseExecuted {
        /// The phase.
        phase: String,
        /// What the handler's call would have returned, as JSON.
        result: String,
    },
    /// It was not executed, and will not be: the next retry runs it. Of an operation that resumes: the call that follows what is kept.
    NotExecuted,
    /// The provider does not know it. That counts as not executed once a late request must have arrived
    /// ([`Reconciliation::not_found_grace`]), and only while the provider remembers keys
    /// ([`Operation::not_found_within`](crate::operation::Operation::not_found_within)). After that it is escalated.
    NotFound,
    /// It is not decided yet. Ask again after this time or the backoff, whichever is longer, but no later than the
    /// [longest unknown age](Reconciliation::max_unknown_age) from now.
    AskAgain(Option<std::time::Duration>),
}

impl Finding {
    /// This phase of an operation that resumes was executed, and its handler's call would have returned this.
    ///
    /// # Errors
    /// If JSON cannot carry the result.
    pub fn phase_executed(phase: &str, result: &impl Serialize) -> Result<Self, JsonError> {
        Ok(Self::PhaseExecuted { phase: phase.to_owned(), result: json::to_string(result)? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        message::{DeferredReport, Message},
        operation::Operation,
        queue::{MemoryQueue, WorkError, tests::Silent},
        record::{
            Alarm, AlarmKind, KeptAnswer, Note, Report, ReservationRequest, Revision,
            tests::{Mint, RETAIN, Reports, answer, reservation},
        },
        store::{Store, memory::MemoryStore},
        time::Timestamp,
        time_budget::SEND_TIMEOUT,
        world::{ManualWorld, World},
    };

    pub(crate) const NOW: Timestamp = Timestamp::from_secs(20_000);

    /// Denies everything, and changes the record while it is asked, as others may.
    struct Restless(MemoryStore);

    #[async_trait]
    impl Reconciler for Restless {
        async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
            let changed = Record { revision: Revision::mint(), ..question.record().clone() };
            self.0.put(Some(question.record().revision), &changed, &[]).await?;
            Ok(Finding::NotExecuted)
        }
    }

    /// A store with this record, and the reconciliation that asks its reconciler.
    pub(crate) async fn reconciliation<R: Reconciler>(
        record: &Record,
        reconciler: impl FnOnce(MemoryStore) -> R,
    ) -> (MemoryStore, Reconciliation) {
        reconciliation_to(record, MemoryQueue::new(), reconciler).await
    }

    async fn reconciliation_to<R: Reconciler>(
        record: &Record,
        dead_letters: MemoryQueue,
        reconciler: impl FnOnce(MemoryStore) -> R,
    ) -> (MemoryStore, Reconciliation) {
        let store = MemoryStore::new();
        store.put(None, record, &[]).await.expect("the store answers");
        let reconciliation = Reconciliation::new(store.clone(), dead_letters)
            .world(ManualWorld::at(NOW))
            .operation(Operation::new(record.key.operation().as_str()), reconciler(store.clone()));
        (store, reconciliation)
    }

    pub(crate) fn in_progress() -> Record {
        Record::reserve(
            &ReservationRequest { lease_until: NOW.plus(Duration::from_secs(60)), ..reservation("k") },
            Revision::mint(),
            NOW,
        )
    }

    pub(crate) fn unknown() -> Record {
        let record = in_progress();
        let unknown = record.mark_unknown(&record, Revision::mint(), NOW);
        unknown.expect("it is in progress").into()
    }

    /// A record that is changed whenever it is asked about.
    pub(crate) async fn restless() -> (RecordKey, Reconciliation) {
        let record = unknown();
        let (_, reconciliation) = reconciliation(&record, Restless).await;
        (record.key, reconciliation)
    }

    /// Says that it was executed, while its worker reports that it was refused.
    struct Overtaken(MemoryStore);

    #[async_trait]
    impl Reconciler for Overtaken {
        async fn ask(&self, question: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
            let (record, refusal) = (question.record(), Answer::json(402, "{}").head);
            let refused = KeptAnswer { head: refusal, ..answer() };
            let completed = record.complete(record, Revision::mint(), refused, NOW);
            let completed: Record = completed.ok_or("it is its own")?.into();
            self.0.put(Some(record.revision), &completed, &[]).await?;
            Ok(Finding::Executed(Answer::json(201, "{}")))
        }
    }

    // T50: whoever waits for it is killed, and what it has not processed comes again.
    #[tokio::test]
    async fn a_queue_that_never_answers_is_left_in_time() {
        let (record, store, world) = (in_progress(), MemoryStore::new(), ManualWorld::at(NOW));
        store.put(None, &record, &[]).await.expect("the store answers");
        let reconciliation =
            Reconciliation::new(store.clone(), Silent).questions_to(Silent).world(world.clone());
        let operation = Operation::new(record.key.operation().as_str());
        let reconciliation = reconciliation.operation(operation, Restless(store));
        let report = ProviderReport::not_executed();
        let later = world.passing(reconciliation.reported(&record.key, &report)).await;
        assert!(matches!(later, Err(WorkError::Queue(_))), "{later:?}");
        assert_eq!(world.running(), SEND_TIMEOUT);
        let old = Record {
            key: reservation("another").key,
            ..Record::reserve(&reservation("k"), Revision::mint(), NOW.minus(2 * RETAIN))
        };
        let gone =
            DeferredReport::of(&old, &Report::Completed(answer()), &[], old.began_at).expect("it is short");
        let message = Message::DeferredReport(Box::new(gone)).to_json();
        let dead = world.passing(reconciliation.receive(&message)).await;
        assert!(matches!(dead, Err(WorkError::Queue(_))), "{dead:?}");
        assert_eq!(world.running(), 2 * SEND_TIMEOUT);
    }

    // T46, T32
    #[tokio::test]
    async fn a_finding_that_contradicts_a_completion_meanwhile_is_a_dead_letter() {
        let (record, dead_letters) = (unknown(), MemoryQueue::new());
        let (_, reconciliation) = reconciliation_to(&record, dead_letters.clone(), Overtaken).await;
        reconciliation.ask(&record.key).await.expect("it is processed");
        let [(message, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
        assert!(matches!(Message::read(message), Ok(Message::Contradiction(_))), "{message}");
    }

    // T46: the provider says it once, and the dead letter is not sent. The next poll tells operators.
    #[tokio::test]
    async fn a_contradiction_is_in_its_record_before_its_dead_letter_is_sent() {
        let (record, store, world) = (unknown(), MemoryStore::new(), ManualWorld::at(NOW));
        store.put(None, &record, &[]).await.expect("the store answers");
        let operation = || Operation::new(record.key.operation().as_str());
        let reconciling =
            Reconciliation::new(store.clone(), Silent).operation(operation(), Overtaken(store.clone()));
        let reconciling = reconciling.world(world.clone());
        let asked = world.passing(reconciling.ask(&record.key)).await;
        assert_eq!(asked.expect("the record has it"), ReconcileOutcome::Escalated);
        let alarmed = store.load(&record.key).await.unwrap().unwrap();
        assert!(alarmed.untold().is_some_and(|alarm| alarm.kind == AlarmKind::Contradicted), "{alarmed:?}");
        let dead_letters = MemoryQueue::new();
        let polling = Reconciliation::new(store.clone(), dead_letters.clone());
        let polling = polling.operation(operation(), Restless(store.clone())).world(world.clone());
        for told in [1, 0] {
            polling.poll(Duration::from_secs(10)).await.expect("the store answers");
            assert_eq!(dead_letters.take().len(), told);
        }
        assert!(store.load(&record.key).await.unwrap().unwrap().untold().is_none());
    }

    /// Knows that it was executed.
    struct Knows;

    #[async_trait]
    impl Reconciler for Knows {
        async fn ask(&self, _: &Question) -> Result<Finding, Box<dyn Error + Send + Sync>> {
            Ok(Finding::Executed(Answer::json(201, "{}")))
        }
    }

    // T83: it settles what is open, and the provider does not say it again.
    #[tokio::test]
    async fn a_second_effect_without_room_for_its_alarm_is_a_dead_letter() {
        let mut record: Record = unknown().name_effect(Note::new("ch_1"), Revision::mint()).into();
        for number in 0..protocol::record::MAX_ALARMS {
            let alarm = Alarm::new(AlarmKind::Contradicted, &number.to_string(), None, NOW);
            record = record.alarm(Alarm { is_told: true, ..alarm }, Revision::mint()).unwrap().into();
        }
        let dead_letters = MemoryQueue::new();
        let (store, reconciliation) = reconciliation_to(&record, dead_letters.clone(), |_| Knows).await;
        let ours = record.key.downstream_key(&record.fingerprint, "charge");
        let second = ProviderReport::executed(201, Knows).under("charge", &ours).effect_id("ch_2");
        let reported = reconciliation.reported(&record.key, &second).await.expect("it is processed");
        assert_eq!(reported, ReconcileOutcome::Escalated);
        assert_eq!(store.load(&record.key).await.unwrap().unwrap().state.name(), "completed");
        let [(message, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
        assert!(message.contains("ch_2"), "{message}");
    }

    // T5: it may have been settled, and then deleted by time to live.
    #[tokio::test]
    async fn a_report_whose_record_is_gone_for_good_is_a_dead_letter() {
        let (others, dead_letters) =
            (Record { key: reservation("another").key, ..unknown() }, MemoryQueue::new());
        let (_, reconciliation) = reconciliation_to(&others, dead_letters.clone(), Restless).await;
        let old = Record::reserve(&reservation("k"), Revision::mint(), NOW.minus(2 * RETAIN));
        let ended = Report::Completed(answer());
        let report = DeferredReport::of(&old, &ended, &[], old.began_at).expect("it is short");
        reconciliation
            .receive(&Message::DeferredReport(Box::new(report)).to_json())
            .await
            .expect("escalated");
        let [(message, _)] = &dead_letters.take()[..] else { panic!("not one dead letter") };
        assert!(matches!(Message::read(message), Ok(Message::Contradiction(_))), "{message}");
    }
}
