//! Runs a function once for its key.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, Guard, Ran, RunError, UnkeptResult};
use crate::{
    engine::{Computed, Execution, Handled, LeaseOver, Replay, Replied, Report, Request, SingleTransaction},
    error_chain::json_error,
    fingerprint::{Content, Fingerprints},
    json,
    key::{FoundKey, RecordKey},
    operation::How,
    record::{Answer, AnswerKind, HANDLER_FAILED, Head, Says, Work},
};

/// What a function did.
type Outcome<T> = Result<T, RunError>;

impl Guard {
    /// Runs `function` with this input, if no call of this key did so before; otherwise returns what that one returned.
    ///
    /// `key` names one intended effect, in one part or several, such as a source and its id: see
    /// [`IdempotencyKey::of`](crate::key::IdempotencyKey::of). The same key with another input is a [mismatch](RunError::Mismatch).
    ///
    /// Two inputs are one if their JSON has the same value. The order of a map's entries does not count, that of a list's does: a set must be a
    /// `BTreeSet`, because a `HashSet` has another order each time. Numbers count by their exact decimal value: `1` and `1.0` are one, two
    /// neighbouring floats are not. An input that [JSON cannot carry](crate::JsonError) is refused.
    ///
    /// The result is kept as JSON, and every call returns what is read from that, the first one too. If JSON cannot carry it, the operation is
    /// completed without it: see [`RunError::ResultNotKept`].
    ///
    /// Poll this future to its end, or drop it: a stream of such futures that is not polled for a while runs none of them, and their leases pass.
    /// The function runs to its end even if the future is dropped, as a task of its own: so it must not need the task-locals of its caller. If it is
    /// dropped outside a runtime, or when that shuts down, the function ends there, and the lease ends its record. It gets an [`Execution`]: downstream keys, domain writes, phases.
    ///
    /// # Errors
    /// If there is no result. [`RunError`] says whether something was done, and when to call again.
    ///
    /// ```
    /// use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, key::Tenant};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Shipment {
    ///     tracking: String,
    /// }
    ///
    /// async fn ship(execution: Execution, parcel: String) -> Result<Shipment, Failure> {
    ///     let key = execution.downstream_key("carrier"); // the carrier's idempotency key
    ///     Ok(Shipment { tracking: book(&parcel, &key).await? })
    /// }
    ///
    /// # async fn book(_: &str, key: &str) -> Result<String, std::io::Error> { Ok(key.to_owned()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop")?);
    /// let first = guard.run(&["order-1"], "tea".to_owned(), ship).await?;
    /// let retry = guard.run(&["order-1"], "tea".to_owned(), ship).await?;
    /// assert_eq!(first.value.tracking, retry.value.tracking);
    /// assert!(retry.how.is_replay() && !first.how.is_replay());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<I, T, F, H>(&self, key: &[&str], input: I, function: F) -> Result<Ran<T>, RunError>
    where
        I: Serialize + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(Execution, I) -> H + Send + 'static,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let key = FoundKey::unnamed(key).map_err(RunError::Key)?;
        let body = json::to_string(&input).map_err(RunError::Input)?;
        self.run_body(key, body.as_bytes(), |execution| function(execution, input)).await
    }

    /// The same for an input that came as text.
    pub(crate) async fn run_body<T, F, H>(&self, key: FoundKey, body: &[u8], function: F) -> Outcome<Ran<T>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(Execution) -> H + Send + 'static,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let request = self.parse(key, body);
        let guard = self.clone();
        let work = async move {
            let handler = async |execution| {
                // Called within the future, so that a function which panics at once is caught too.
                let result = AssertUnwindSafe(async move { function(execution).await });
                result.catch_unwind().await.ok()
            };
            let handled = |_: &Execution, result: Result<_, LeaseOver>| match result {
                Ok(result) => handled(result),
                Err(LeaseOver) => Handled::perhaps(LeaseOver::WHY, None),
            };
            let Replied { says, reply } = guard.executor.run(&request, handler, handled).await;
            guard.told(says, reply.flatten(), &request)
        };
        self.executor.to_its_end(work).await.unwrap_or_else(|| Err(self.unknown(None)))
    }

    /// The same in one round trip, without a reservation: the result and the [domain writes](crate::domain) commit together. For a function
    /// whose effects are all domain writes. It **may run more than once** for a key, and must have no other effect.
    ///
    /// # Errors
    /// As [`run`](Self::run). The outcome is never unknown. If JSON cannot carry the result, nothing is done:
    /// [`RunError::NotExecuted`], whose source is an [`UnkeptResult`].
    ///
    /// # Panics
    /// If the operation has phases, or [`Operation::completion_timeout`](crate::Operation::completion_timeout) is longer than a transaction may be sent.
    pub async fn run_single_transaction<I, T, F, H>(
        &self,
        key: &[&str],
        input: I,
        function: F,
    ) -> Result<Ran<T>, RunError>
    where
        I: Serialize + Clone + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(SingleTransaction, I) -> H,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        self.executor.operation().assert_single_transaction();
        let key = FoundKey::unnamed(key).map_err(RunError::Key)?;
        let body = json::to_string(&input).map_err(RunError::Input)?;
        let request = self.parse(key, body.as_bytes());
        let compute = |transaction| -> BoxFuture<'static, Computed<Option<Outcome<T>>>> {
            // A function may panic before it returns its future.
            let begun = catch_unwind(AssertUnwindSafe(|| function(transaction, input.clone()))).ok();
            Box::pin(async move {
                let result = match begun {
                    Some(future) => AssertUnwindSafe(future).catch_unwind().await.ok(),
                    None => None,
                };
                match handled(result) {
                    // Nothing is done yet, and a program with another type can do it.
                    Handled { reply: Some(Err(RunError::ResultNotKept(result))), .. } => {
                        Computed::Nothing(Some(Err(RunError::NotExecuted(Some(Box::new(result))))))
                    }
                    Handled { report: Report::Completed(answer), reply, .. } => {
                        Computed::Answer(answer, reply)
                    }
                    Handled { reply, .. } => Computed::Nothing(reply),
                }
            })
        };
        let Replied { says, reply } = self.executor.run_single_transaction(&request, compute).await;
        match (says, reply.flatten()) {
            // All effects are in the transaction.
            (Says::Released, Some(Err(RunError::Unknown { source, .. }))) => {
                Err(RunError::NotExecuted(source))
            }
            (Says::Released, reply) => Err(match reply {
                Some(Err(error)) => error,
                _ => RunError::NotExecuted(None),
            }),
            (says, reply) => self.told(says, reply, &request),
        }
    }

    fn parse(&self, key: FoundKey, body: &[u8]) -> Request {
        let operation = self.executor.operation();
        let admission = operation.admission_of(&key, None, self.executor.in_world().now());
        Request {
            key: RecordKey::new(self.tenant.clone(), operation.name().clone(), key.key),
            fingerprints: self.fingerprints(body),
            answer_kind: AnswerKind::Function,
            admission,
            work: Work::Now,
            origin: self.origin.clone(),
            deadline: self.deadline,
        }
    }

    /// The fingerprints of this input: by its meaning if it is JSON, else by its bytes.
    fn fingerprints(&self, body: &[u8]) -> Fingerprints {
        let operation = self.executor.operation();
        let content = Content::new(METHOD, "", body).json();
        content.fingerprints(operation.name().as_str(), &operation.rule, &operation.former_rules)
    }

    /// What the caller gets that is told this. No result: the function did not run, or panicked.
    fn told<T: DeserializeOwned>(
        &self,
        says: Says<Replay>,
        result: Option<Outcome<T>>,
        request: &Request,
    ) -> Outcome<Ran<T>> {
        let source = |result| match result {
            Some(Err(RunError::NotExecuted(source) | RunError::Unknown { source, .. })) => source,
            _ => None,
        };
        Err(match says {
            Says::Own { expires_at } => match result {
                Some(Err(RunError::Unknown { source, .. })) => self.unknown(source),
                Some(result) => return result.map(|value| Ran { value, how: How::Executed, expires_at }),
                None => self.unknown(None),
            },
            Says::Replay(replay) => {
                let (how, expires_at) =
                    (How::Replayed { first_at: replay.first_at }, Some(replay.expires_at));
                return replayed(replay).map(|value| Ran { value, how, expires_at });
            }
            Says::Refused(Replay { answer, expires_at, .. }) => {
                let expires_at = Some(expires_at);
                return read(answer).map(|value| Ran { value, how: How::Executed, expires_at });
            }
            Says::InFlight { wait, lease_left, .. } => self.in_flight(wait, lease_left),
            Says::PerhapsInFlight | Says::AnsweredElsewhere | Says::Unconfirmed => {
                self.in_flight(Duration::ZERO, Duration::ZERO)
            }
            Says::Mismatch => RunError::Mismatch,
            Says::Unknown { wait } => RunError::Unknown { wait: self.wait(wait), source: source(result) },
            Says::MayNotBegin => {
                let reason = request.admission.refusal().map_or("too-old", |refusal| refusal.reason);
                RunError::MayNotBegin(reason.to_owned())
            }
            Says::Interrupted | Says::OtherPhases => RunError::Interrupted(source(result)),
            Says::Released | Says::NotCommitted => RunError::NotExecuted(source(result)),
            Says::Unreadable => RunError::RecordUnreadable,
            Says::OverBound { wait } => RunError::OverBound { wait: self.wait(wait) },
            Says::Stopped => RunError::Stopped,
            Says::TooLate | Says::Unavailable | Says::Throttled | Says::Gone => RunError::Unavailable,
        })
    }

    fn unknown(&self, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> RunError {
        RunError::Unknown { wait: self.wait(Duration::ZERO), source }
    }

    fn in_flight(&self, wait: Duration, lease_left: Duration) -> RunError {
        RunError::InFlight { wait: self.wait(wait), lease_left }
    }

    fn wait(&self, wait: Duration) -> Duration {
        self.executor.operation().retry_after_of(wait)
    }
}

/// In the fingerprint, in place of an HTTP method: no method has a space.
const METHOD: &str = "a function";

/// The report of a function, and what its caller gets if that is written. `None` if it panicked.
fn handled<T>(result: Option<Result<T, Failure>>) -> Handled<Option<Outcome<T>>>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let (report, reply) = match result {
        Some(Ok(result)) => match Answer::round_trip(&result) {
            // Not what the function returned: each caller gets what is read from the kept result.
            Ok((answer, read)) => (Report::Completed(answer), Some(Ok(read))),
            Err(error) => {
                let result = UnkeptResult::new(result, error);
                let (result_type, why) = (result.type_name(), result.why());
                tracing::error!(result_type, %why, "JSON cannot carry the function's result: it is not kept");
                (Report::Completed(Answer::without_value()), Some(Err(RunError::ResultNotKept(result))))
            }
        },
        Some(Err(Failure::Permanent(reason))) => {
            (Report::Completed(Answer::refusal(&*reason)), Some(Err(RunError::Refused(reason))))
        }
        Some(Err(Failure::NotExecuted(error))) => {
            tracing::warn!(error = &*error as &dyn std::error::Error, "the function did nothing");
            (Report::NotExecuted(None), Some(Err(RunError::NotExecuted(Some(error)))))
        }
        Some(Err(Failure::Perhaps(error))) => {
            tracing::error!(error = &*error as &dyn std::error::Error, "the function failed");
            let error = RunError::Unknown { wait: Duration::ZERO, source: Some(error) };
            (Report::perhaps(HANDLER_FAILED), Some(Err(error)))
        }
        None => {
            // The panic hook has printed the panic's message.
            tracing::error!("the function panicked");
            (Report::perhaps("panicked"), None)
        }
    };
    Handled { report, status: None, reply }
}

fn replayed<T: DeserializeOwned>(replay: Replay) -> Outcome<T> {
    if !replay.body_omitted {
        return read(replay.answer);
    }
    // Nothing but an effect was executed.
    Err(if replay.answer.head.is_effect() {
        RunError::ResultUnreadable("it was not kept, or is gone".to_owned())
    } else {
        RunError::Refused("it was too large to be kept, or is gone".to_owned())
    })
}

/// The result that is kept.
fn read<T: DeserializeOwned>(Answer { head, body }: Answer) -> Outcome<T> {
    let unreadable = |why: String| {
        tracing::error!(why, "a kept result cannot be read");
        RunError::ResultUnreadable(why)
    };
    Err(match head {
        Head::Payload => {
            return serde_json::from_slice(&body).map_err(|error| unreadable(json_error(&error)));
        }
        Head::Refusal => RunError::Refused(String::from_utf8_lossy(&body).into_owned()),
        // As a reconciler or an operator wrote it.
        Head::Http { status, .. } if head.is_effect() => {
            unreadable(format!("it is an HTTP response, {status}"))
        }
        Head::Http { status, .. } => RunError::Refused(format!("it was answered {status}")),
        Head::Abandoned => RunError::Refused("no worker began it in time".to_owned()),
    })
}
