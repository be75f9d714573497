//! What must hold, in all worlds and in whole functions.

use std::fmt;

/// Each property, by its name and by what it says.
macro_rules! properties {
    ($($name:ident: $says:literal,)*) => {
        /// A property that does not hold.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Violation {
            $(#[doc = $says] $name,)*
        }

        impl fmt::Display for Violation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $says,)*
                })
            }
        }

        impl Violation {
            /// The names of all.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
        }
    };
}

properties! {
    // Who may begin.
    BeganAfterEffect: "no execution begins once an effect is reported to the record",
    BeganOverHold: "no execution begins while an operator holds the record",
    BeganStopped: "nothing begins from its beginning for a tenant whose stop its worker knows",
    RetryOverBound: "no retry of an operation that has a record is refused because its tenant is over a bound",
    BeganLate: "no execution begins once the time to claim it is over",
    BeganWithoutLease: "a handler begins only under its own lease, with time left",
    RanWhileUnknown: "no execution begins while the outcome of another is unknown",
    ClientTookOver: "only a worker's claim begins an execution of what is accepted",
    AnotherRequest: "a worker executes what was accepted with its request, and nothing else",
    TooManyAttempts: "nothing is tried more often than its operation or its consumer says",
    NeverTried: "in its time, accepted work ends with 408 only after as many handlers as it has tries",
    EndlessLease: "a lease ends half an hour after it begins, with its grace",
    NotTakenBack: "a reservation without an answer is taken back for as long as it can still land",

    // Effects.
    TwoEffects: "at most one effect, if provider, operators and table are honest",
    RepeatedEffect: "no call has a second effect, if the provider remembers keys as it promises",
    SilentDouble: "two reported effects are with operators",
    Rows: "rows are committed once if the record is completed with them, or keeps their phase, and otherwise never",
    AnotherDownstreamKey: "a record's fingerprint, and so its downstream keys, never change",

    // What is reported, and what is kept.
    LostReport: "each accepted report is in the answer, or with operators",
    Forgotten: "what was done is never released",
    LostPhase: "a kept phase stays kept, with its result, and nothing ends over it as not executed",
    OpenedByNobody: "no call counts as perhaps made whose handler had not come to it",
    UnknownOverResult: "an operation is not unknown because of a call whose result it has",
    AnotherWrite: "a write is repeated with the same content only",
    TimeToLive: "of what is accepted, only what is completed has a time to live",
    KeptTooShort: "an answer is kept for the retention of its guard, whichever source settles it",
    MissingBody: "a record never names a body that is not stored",
    RequestMissing: "the accepted request is kept for as long as a worker may need it",
    RequestLeft: "at rest, the accepted request of what is settled is gone",
    WrongKind: "a record keeps only what its callers can read",

    // Answers.
    RefusalOverEffect: "no refusal becomes the answer over a reported effect",
    RefusalOverPossibleEffect: "no refusal becomes the answer over another execution's possible effect",
    ForgottenRefusal: "a refusal that a caller got is with operators if there was an effect",
    FalseAnswer: "no answer is untrue: it says what was done, and nothing else",
    FalseAbandonment: "408 is the answer only if there is no effect, then or later",
    TwoAnswers: "all callers get one answer that never changes, or operators know it",
    MisledClient: "nothing is done under a key once its client was told, with nothing done, that it leads to nothing",
    KeyNotFree: "a key whose client was told that nothing was begun takes any request",

    // Messages.
    Overwritten: "each message has a number of its own, which its record counts",
    OutOfOrder: "messages are first handed over in their order, and those of a FIFO group or a partition key executed in it",
    DeliveredOutOfOrder: "the first deliveries of a record's messages come in their order",
    Undelivered: "each published message is delivered, without a sweep if the stream lost nothing",
    ActedTwice: "a consumer that remembers ids acts once on each message",
    NotCommitted: "what is delivered was committed, by the execution whose answer or phase is kept",
    Acknowledged: "a message is acknowledged only if what it says is kept, or done",
    LostMessage: "a message without an effect is in its queue or shard, or in the dead letters",
    BuriedUntried: "a message is a dead letter only if it is refused, or after all its tries, or if its shard cannot wait for it any longer",
    TooManyReceives: "a message is not received again and again while it waits",

    // Operators.
    LostAlarm: "an alarm of a record stands until an operator clears it",
    Uncounted: "each end of work with 408 is counted once",
    PutOff: "an unknown outcome is asked about, or escalated, within its greatest age",

    // Rest.
    NoRest: "at rest, the record is completed, with operators, or free if it was not accepted",
    NeverExecuted: "a request or message without faults is executed",
    NeverResumed: "what waits between workers is resumed, by workers or by a retry that meets no fault",
}
