//! Takes the tenants with due questions in turn.

use std::collections::{HashSet, VecDeque};

use super::Reconciliation;
use crate::{
    key::RecordKey,
    record::Revision,
    store::{Checkpoint, Cursor, StoreError, StoreErrorKind},
    time::Instant,
    time_budget::MIN_QUESTION_TIME,
};

/// How many questions are asked at once: not enough to overload a provider that was down.
pub(super) const AT_ONCE: usize = 8;

/// How many questions of one tenant are asked in its turn: as many as are asked at once, so that a turn takes as long as a question.
const TURN: usize = AT_ONCE;

/// The name of the checkpoint in which a poll leaves where the next one continues.
const POLL: &str = "poll";

/// The due questions, in the order in which a poll asks them.
///
/// It goes round all tenants, in the store's order, and takes a turn of each of which something is due. It leaves its place to the next poll
/// as each turn begins, because it may be killed. If each poll began anew, the tenants at the end would wait for as long as those at the beginning
/// have questions, or as one of theirs kills the poll.
pub(super) struct Turns<'a> {
    reconciliation: &'a Reconciliation,
    until: Instant,
    /// Those that were read. The first one of a turn has the place behind its tenant.
    questions: VecDeque<(RecordKey, Option<Cursor>)>,
    /// Where to read on.
    from: Option<Cursor>,
    /// Behind the last tenant whose turn has begun.
    place: Option<Cursor>,
    /// Whether this round began with the first tenant, and whether it has found a question.
    round: Round,
    /// What this poll has asked: the index may still list it, and a record that cannot be read stays in it.
    taken: HashSet<RecordKey>,
    /// The checkpoint when the poll began.
    saved: (Option<Revision>, Option<String>),
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
struct Round {
    is_whole: bool,
    has_found: bool,
}

enum Ended {
    AllAsked,
    NoTime,
    Failed(StoreError),
}

impl<'a> Turns<'a> {
    /// Begins where the last poll stopped.
    pub(super) async fn new(reconciliation: &'a Reconciliation, until: Instant) -> Self {
        let load = reconciliation.records.load_checkpoint(POLL);
        let saved = match reconciliation.engine.bounded(None, load).await {
            Ok(Some(checkpoint)) => (Some(checkpoint.revision), checkpoint.progress),
            Ok(None) => (None, None),
            Err(error) => {
                tracing::warn!(
                    cause = error.cause(),
                    "a poll begins anew: it cannot read where the last one stopped"
                );
                (None, None)
            }
        };
        let from: Option<Cursor> = saved.1.as_deref().and_then(|place| serde_json::from_str(place).ok());
        Self {
            reconciliation,
            until,
            questions: VecDeque::new(),
            place: from.clone(),
            round: Round { is_whole: from.is_none(), has_found: false },
            from,
            taken: HashSet::new(),
            saved,
            ended: None,
        }
    }

    /// The next question; `None` if there are no more, or no time for one.
    pub(super) async fn next(&mut self) -> Option<RecordKey> {
        while self.ended.is_none() {
            if !self.has_time() {
                self.ended = Some(Ended::NoTime);
            } else if let Some(behind) = self.questions.front_mut().and_then(|(_, behind)| behind.take()) {
                // Before its first question, which may kill the poll.
                let before = self.place.replace(behind);
                self.save().await;
                if !self.has_time() {
                    self.place = before;
                }
            } else if let Some((key, _)) = self.questions.pop_front() {
                self.taken.insert(key.clone());
                return Some(key);
            } else if let Err(error) = self.read().await {
                self.ended = Some(Ended::Failed(error));
            }
        }
        None
    }

    fn has_time(&self) -> bool {
        self.until.since(self.reconciliation.engine.world.instant()) >= MIN_QUESTION_TIME
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        // All turns before it are over, or nothing is due there.
        self.place = self.from.clone();
        self.save().await;
        let Reconciliation { engine, records, .. } = self.reconciliation;
        let due = records.due(engine.world.now(), self.from.as_ref(), TURN, &self.taken);
        let due = engine.bounded(Some(self.until), due).await?;
        self.round.has_found |= !due.turns.is_empty();
        for turn in due.turns {
            let mut behind = Some(turn.next);
            self.questions.extend(turn.keys.into_iter().map(|key| (key, behind.take())));
        }
        self.from = due.next;
        if self.from.is_none() {
            if self.round.is_whole && !self.round.has_found {
                self.ended = Some(Ended::AllAsked);
            }
            self.round = Round { is_whole: true, has_found: false };
        }
        Ok(())
    }

    /// Leaves to the next poll where this one stopped.
    ///
    /// # Errors
    /// If the store could not read what is due.
    pub(super) async fn end(mut self) -> Result<(), StoreError> {
        let ended = self.ended.take().unwrap_or(Ended::NoTime);
        match &ended {
            Ended::AllAsked => self.place = None,
            // The store may have refused the place to continue from.
            Ended::Failed(error) if error.kind() == StoreErrorKind::Refused => self.place = None,
            Ended::NoTime | Ended::Failed(_) => {}
        }
        self.save().await;
        match ended {
            Ended::Failed(error) => Err(error),
            Ended::AllAsked | Ended::NoTime => Ok(()),
        }
    }

    /// Writes the place, if it is another one. If another poll has written its own meanwhile, that one counts.
    async fn save(&mut self) {
        // Strings: this cannot fail.
        let progress = self.place.as_ref().map(|place| serde_json::to_string(place).unwrap_or_default());
        if progress == self.saved.1 {
            return;
        }
        let Reconciliation { engine, records, .. } = self.reconciliation;
        let revision: Revision = engine.world.nonce().into();
        let checkpoint = Checkpoint {
            name: POLL.to_owned(),
            revision,
            lease_until: engine.world.now(),
            progress: progress.clone(),
        };
        match engine.sent_again(|| records.write_checkpoint(self.saved.0, &checkpoint)).await {
            Ok(_) => self.saved = (Some(revision), progress),
            Err(error) => {
                tracing::warn!(cause = error.cause(), "the next poll begins where an earlier one did");
            }
        }
    }
}
