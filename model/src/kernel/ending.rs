//! A report's way, one command at a time: production code decides, and each world does what it says.

use protocol::{
    record::{
        Deferred, Ending, Instead, MessageNext, Moment, Record, Revision, Says, SoFar, Step, Transition,
        WorkerNext, Written,
    },
    time::Timestamp,
};

use super::{
    records::{Id, NO_REVISION},
    report::answer,
};

/// What a report has led to until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    pub by: By,
    pub write: Option<Written>,
    pub instead: Replaced,
    pub deferred: Deferred,
    pub differs: Option<bool>,
    pub is_lost: bool,
    pub is_overruled: bool,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// The worker itself.
    #[default]
    Worker,
    /// Its message.
    Message,
    /// Its message, whose body cannot be stored yet.
    HandedBack,
}

/// What is reported in place of the handler's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Replaced {
    #[default]
    No,
    /// Its rows are refused, with the refusal of this number as its answer.
    Answer(u8),
    /// Its rows are refused.
    Refused,
}

/// The next command of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The record becomes this one.
    Writes(Id),
    /// Another execution's record is marked.
    Marks(Id),
    Defers,
    /// The report lies beside the record, which becomes this one, with an alarm.
    Alarms(Id),
    Compares,
    /// The worker's caller is told this, and it is over.
    Tells(Says),
    /// The message is done with.
    IsDone,
    /// The same, and operators are told of it.
    Escalates,
    ComesAgain,
}

impl Progress {
    pub const DELIVERED: Self = Self { by: By::Message, ..Self::START };
    pub const HANDED_BACK: Self = Self { by: By::HandedBack, ..Self::START };
    pub const START: Self = Self {
        by: By::Worker,
        write: None,
        instead: Replaced::No,
        deferred: Deferred::NotYet,
        differs: None,
        is_lost: false,
        is_overruled: false,
    };
    /// The store does not answer.
    pub const UNANSWERED: Self = Self { write: Some(Written::Perhaps { passing: true }), ..Self::START };

    fn so_far(&self) -> SoFar {
        SoFar {
            write: self.write,
            instead: match self.instead {
                Replaced::No => Instead::Nothing,
                Replaced::Answer(number) => Instead::Answer(answer(402, number)),
                Replaced::Refused => Instead::Refused,
            },
            deferred: self.deferred,
            differs: self.differs,
            is_lost: self.is_lost,
            is_overruled: self.is_overruled,
        }
    }

    /// The next command. `number` numbers the record that is written, and with which the rows commit if it is told so.
    pub fn next(
        &self,
        ending: &Ending,
        current: Option<&Record>,
        now: Timestamp,
        number: impl FnMut(Transition, bool) -> Id,
    ) -> Command {
        let (so_far, revision): (_, Revision) = (self.so_far(), NO_REVISION.into());
        let of_message = |next| match next {
            MessageNext::Compare => Command::Compares,
            MessageNext::Done | MessageNext::TooLate => Command::IsDone,
            MessageNext::Escalate(_) => Command::Escalates,
            MessageNext::ComesAgain | MessageNext::Waits => Command::ComesAgain,
        };
        let of_worker = |next| match next {
            WorkerNext::Defer => Command::Defers,
            WorkerNext::Tell { says, .. } => Command::Tells(says),
        };
        let at = Moment { revision, now };
        match self.by {
            By::Worker => command(ending.step(current, &so_far, at), number, of_worker),
            By::Message => command(ending.deliver(current, &so_far, at), number, of_message),
            By::HandedBack => command(ending.hand_back(current, &so_far, at), number, of_message),
        }
    }
}

fn command<N>(
    step: Step<N>,
    mut number: impl FnMut(Transition, bool) -> Id,
    other: impl Fn(N) -> Command,
) -> Command {
    match step {
        Step::Write { next, commits } => Command::Writes(number(next, commits)),
        Step::Mark(next) => Command::Marks(number(next, false)),
        Step::Alarm(next) => Command::Alarms(number(next, false)),
        Step::Next(next) => other(next),
    }
}
