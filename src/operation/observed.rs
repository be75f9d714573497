//! What an operation's observer is told of each request, and how a caller came by an answer.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use crate::{key::RecordKey, time::Timestamp};

/// What became of one request for an operation: see [`Operation::observe`](super::Operation::observe).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// Tenant, operation and idempotency key. Log its [hash](RecordKey::hash): tenant and key are data of the caller.
    pub key: &'a RecordKey,
    /// What the caller is told, by one of these names: `own` (what its handler, or what accepts, answers), `released` (the same, and nothing was done), `replay`,
    /// `refused` (the answer of a refused domain write), `not_committed`, `interrupted`, `unknown`, `answered_elsewhere`, `unconfirmed`,
    /// `in_flight`, `mismatch`, `too_old`, `too_late`, `unavailable`, `unreadable`, `gone`, `other_phases`. Logs and the walkthrough use the
    /// same.
    pub says: &'static str,
    /// How the caller came by the operation's answer, if it gets that.
    pub how: Option<How>,
    /// How many executions there were, if one of them was for this request, after a reservation.
    pub attempts: Option<u32>,
    /// How long the request took, from its reservation to its last write.
    pub took: Duration,
}

/// A function that is told of each request.
#[derive(Clone)]
pub(crate) struct Observer(pub(crate) Arc<dyn Fn(&Observed<'_>) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    /// Tells it. Its panic takes no answer from a caller.
    pub(crate) fn tell(&self, observed: &Observed<'_>) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| (self.0)(observed))).is_err() {
            tracing::error!("an operation's observer panicked");
        }
    }
}

/// How a caller came by an operation's answer.
///
/// ```
/// use lambda_idempotency::{Failure, Guard, How, MemoryStore, Operation, key::Tenant};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop")?);
/// let ship = async |_, order: u64| Ok::<_, Failure>(order);
/// let first = guard.run(&["order-1"], 1, ship).await?;
/// let retry = guard.run(&["order-1"], 1, ship).await?;
/// assert_eq!(first.how, How::Executed);
/// assert!(retry.how.is_replay());
/// assert_eq!(first.value, retry.value);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// It was executed for this caller.
    Executed,
    /// It was executed before, or by another execution meanwhile: the answer is replayed.
    Replayed {
        /// When the operation was completed.
        first_at: Timestamp,
    },
}

impl How {
    /// Whether it was not executed for this caller.
    pub const fn is_replay(self) -> bool {
        matches!(self, Self::Replayed { .. })
    }
}
