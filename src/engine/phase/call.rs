//! What handlers call.

use std::{marker::PhantomData, time::Duration};

use futures_util::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    error::{CallError, PhaseError},
    keep::{Committed, Step},
    opened::Opened,
};
use crate::{
    domain::{DomainWrite, Writes},
    engine::execution::Execution,
    record::Reference,
    time_budget::OLD_EFFECT,
};

/// Asks a provider what became of a call.
type Ask<'a, T> = Box<dyn FnOnce(String) -> BoxFuture<'a, Result<Option<T>, CallError>> + Send + 'a>;

/// One external call, whose result is kept: see [`Execution::phase`].
#[must_use = "a phase does nothing until `call`"]
pub struct Phase<'a, T> {
    execution: &'a Execution,
    name: &'a str,
    keys_live: Duration,
    ask: Option<Ask<'a, T>>,
    result: PhantomData<fn() -> T>,
}

impl Execution {
    /// Commits these writes to your tables and a recovery point in one transaction, or neither. If a condition does not hold, that
    /// is a value, and kept: an execution that resumes takes the same way.
    ///
    /// It costs one round trip, 2 write units, and 2 for each row. What a write [says](DomainWrite::or_answer) about a failed condition
    /// does not count here. `name` is 1 to 64 letters, digits, `-`, `_` or `.`, and differs from those of the other phases.
    ///
    /// # Errors
    /// If it is not committed, or that is not known; if the operation does not
    /// [resume](crate::Operation::resumes); or if a phase is used wrongly. The error is final for this execution: return
    /// it.
    ///
    /// ```
    /// use lambda_idempotency::{Execution, domain::Table, engine::{Committed, PhaseError}};
    /// use serde_json::json;
    ///
    /// async fn reserve(execution: &Execution, stock: &Table) -> Result<bool, PhaseError> {
    ///     let take = stock
    ///         .update(json!({ "sku": "tea" }), "SET available = available - :n")
    ///         .condition("available >= :n")
    ///         .value(":n", 1);
    ///     Ok(execution.commit("stock", vec![take]).await? == Committed::Written)
    /// }
    /// ```
    pub async fn commit(&self, name: &str, writes: Vec<DomainWrite>) -> Result<Committed, PhaseError> {
        let mut opened = Opened::begin(self, name)?;
        match opened.next(Duration::ZERO).await? {
            Step::Kept(result) => opened.read(&result).map(Committed::of),
            Step::Ask { .. } | Step::Noted(_) if opened.is_kept().await => {
                Err(opened.misfit(PhaseError::Mismatch))
            }
            // A commit that is not kept runs: its fence decides, whatever an earlier execution began, or others report.
            Step::Call | Step::Ask { .. } | Step::Noted(_) => {
                let writes =
                    Writes::of(writes, opened.records_table()).map_err(|error| opened.failed(error))?;
                opened.commit(writes.into_vec()).await
            }
        }
    }

    /// Remembers a provider's own `id` for what the open call did: within the closure of [`call`](Phase::call), before it returns.
    /// The recovery point of that phase names it. So a report that knows only this id
    /// [finds the record](crate::reconcile::Reconciliation::referred). It costs one round trip and 1 write unit.
    ///
    /// # Errors
    /// If it could not be written, or leads to another record. If no call is open, or the id is empty or too long. In a call, `?`
    /// means that the call was perhaps made.
    ///
    /// ```
    /// use lambda_idempotency::{Execution, engine::PhaseError};
    ///
    /// # async fn at_the_provider(key: &str) -> Result<String, std::io::Error> { Ok(key.to_owned()) }
    /// async fn charge(execution: &Execution) -> Result<String, PhaseError> {
    ///     let charge = execution.phase("charge").call(async |key| {
    ///         let id = at_the_provider(&key).await?;
    ///         execution.refer("stripe", &id).await?;
    ///         Ok(id)
    ///     });
    ///     charge.await
    /// }
    /// ```
    pub async fn refer(&self, provider: &str, id: &str) -> Result<(), PhaseError> {
        let phasing = self.phasing().ok_or(PhaseError::Misused("the operation does not resume"))?;
        let reference = Reference::new(provider, id).ok_or(PhaseError::Misused("this is not a reference"))?;
        phasing.refer(reference.clone()).map_err(PhaseError::Misused)?;
        let engine = &phasing.executor.engine;
        let kept_for = phasing.executor.operation().retain.max(OLD_EFFECT);
        let until = engine.world.now().plus(kept_for.saturating_mul(2));
        // Before the phase is kept: each reference that a record names leads to it, unless the handler goes on after an error.
        let written = engine.sent_again(|| engine.store.refer(&reference, self.record_key(), until)).await;
        written.map_err(|error| {
            tracing::error!(cause = error.cause(), "a reference could not be written");
            PhaseError::NotKept
        })
    }

    /// One external call, with its result kept. Give it what the provider promises, then make the [`call`](Phase::call). A handler
    /// makes its phases one after another, each under a name of its own: 1 to 64 letters, digits, `-`, `_` or `.`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_idempotency::{Execution, engine::{CallError, PhaseError}};
    ///
    /// # async fn at_the_provider(key: &str) -> Result<String, std::io::Error> { Ok(key.to_owned()) }
    /// async fn charge(execution: &Execution) -> Result<String, PhaseError> {
    ///     execution
    ///         .phase("charge")
    ///         .keys_live(Duration::from_secs(24 * 3600))
    ///         .call(async |key| Ok(at_the_provider(&key).await?))
    ///         .await
    /// }
    /// ```
    pub fn phase<'a, T>(&'a self, name: &'a str) -> Phase<'a, T> {
        Phase { execution: self, name, keys_live: Duration::ZERO, ask: None, result: PhantomData }
    }
}

impl<'a, T: Serialize + DeserializeOwned> Phase<'a, T> {
    /// For how long the provider remembers the downstream key: within this time, a second call with the same key has no second effect.
    /// So an execution that resumes makes the call again if an earlier one may have made it. It counts from the earliest execution
    /// that may have made it, less 10 minutes: a request takes time to arrive, and clocks differ. Default: not at all.
    pub const fn keys_live(mut self, span: Duration) -> Self {
        self.keys_live = span;
        self
    }

    /// Asks the provider about a call that an earlier execution may have made, once its key may be forgotten, or if its result was not
    /// kept. What it finds is kept in place of that. `None` means that the call was not made, and will not be: it is made then. An error leaves the
    /// question to the next retry. Without this, the outcome is unknown; if the call was made, and only its result was not kept, each execution ends with
    /// [`PhaseError::ResultMissing`] until a program that asks is deployed.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use lambda_idempotency::{Execution, engine::{CallError, PhaseError}};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// enum Charging {
    ///     Charged { id: String },
    ///     Declined,
    /// }
    ///
    /// async fn charging(execution: &Execution) -> Result<Charging, PhaseError> {
    ///     execution
    ///         .phase("charge")
    ///         .keys_live(Duration::from_secs(24 * 3600))
    ///         .ask(|key| async move { Ok(find(&key).await?.map(|id| Charging::Charged { id })) })
    ///         .call(async |key| match charge(&key).await {
    ///             Ok(id) => Ok(Charging::Charged { id }),
    ///             Err(Failure::Declined) => Ok(Charging::Declined),
    ///             Err(Failure::Unreachable) => Err(CallError::not_executed("no connection")),
    ///             Err(Failure::NoAnswer) => Err("no answer".into()),
    ///         })
    ///         .await
    /// }
    ///
    /// # enum Failure { Declined, Unreachable, NoAnswer }
    /// # async fn charge(_: &str) -> Result<String, Failure> { Ok(String::new()) }
    /// # async fn find(_: &str) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// ```
    pub fn ask<F, A>(mut self, ask: F) -> Self
    where
        F: FnOnce(String) -> A + Send + 'a,
        A: Future<Output = Result<Option<T>, CallError>> + Send + 'a,
    {
        self.ask = Some(Box::new(move |key| Box::pin(ask(key))));
        self
    }

    /// Makes the call with this phase's [downstream key](Execution::downstream_key), and keeps its result before it returns. If the result
    /// is kept already, returns it without a call. Either is what is read from the result's JSON, so each execution sees the same value.
    ///
    /// A refusal such as a declined card is a result: return it as a value. An error says that the call was certainly not made
    /// ([`CallError::not_executed`]), or perhaps made (what `?` means).
    ///
    /// A call costs one round trip and 1 write unit, or 2 if the record is longer than 1 KB. All results of an operation together may have
    /// [`MAX_PHASE_RESULTS`](crate::record::MAX_PHASE_RESULTS) bytes as JSON. A longer one is kept without its value.
    ///
    /// # Errors
    /// If the call was not made, or that is not known; if its result could not be kept, or JSON cannot carry it; if this execution has lost
    /// its record; if the operation does not [resume](crate::Operation::resumes); or if a phase is used wrongly. The error is final for
    /// this execution: return it.
    pub async fn call<F, C>(self, call: F) -> Result<T, PhaseError>
    where
        F: FnOnce(String) -> C,
        C: Future<Output = Result<T, CallError>>,
    {
        let mut opened = Opened::begin(self.execution, self.name)?;
        let key = self.execution.downstream_key(self.name);
        let mut step = opened.next(self.keys_live).await?;
        if let Step::Noted(result) = &step {
            step = match serde_json::from_str(result) {
                Ok(result) => return opened.keep(result).await,
                Err(_) => opened.next_unread(self.keys_live).await?,
            };
        }
        let can_be_answered = self.ask.is_some() || !self.keys_live.is_zero();
        match step {
            Step::Kept(result) => return opened.read(&result),
            Step::Call | Step::Noted(_) => {}
            Step::Ask { made } => {
                let is_kept = opened.is_kept().await;
                let Some(ask) = self.ask else {
                    return Err(match is_kept {
                        true => opened.misfit(PhaseError::ResultMissing),
                        false => opened.unknown(),
                    });
                };
                if is_kept {
                    opened.asks();
                }
                match ask(key.clone()).await {
                    Ok(Some(result)) => return opened.keep(result).await,
                    Ok(None) if is_kept => return Err(opened.misfit(PhaseError::ResultMissing)),
                    Err(error) if is_kept => {
                        return Err(opened.failed(PhaseError::Perhaps(error.into_source())));
                    }
                    // What is known to be made was made.
                    Ok(None) if made => return Err(opened.unknown()),
                    Ok(None) => opened.begin_call()?,
                    Err(error) => return Err(opened.ended(CallError::Perhaps(error.into_source()))),
                }
            }
        }
        match call(key).await {
            Ok(result) => opened.keep(result).await,
            // No later execution could make it again, or ask.
            Err(CallError::Perhaps(error)) if !can_be_answered => {
                tracing::error!(error = &*error as &dyn std::error::Error, "a call was perhaps made");
                Err(opened.unknown())
            }
            Err(error) => Err(opened.ended(error)),
        }
    }
}
