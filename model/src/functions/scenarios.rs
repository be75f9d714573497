//! The scenarios: small environments, each with what may go wrong in it.

use super::scenario::{
    Deadline,
    Fault::{Clocks, Conflicts, Deaths, Freezes, Losses, Outages, Queues, Refusals, Store, Unheard},
    Guarded, Input, InputKind, Provider, Rows, Scenario, Versions, any,
};

/// One client.
pub const ONE: &[Deadline] = &[Deadline::None];

/// Phases, of a provider that remembers keys for a day.
pub const REMEMBERED: Guarded = Guarded::Resumed(24 * 3600);

/// Two clients with the same key.
pub const PLAIN: Scenario = Scenario {
    name: "plain",
    guarded: Guarded::Reserved,
    provider: Provider::Executes,
    versions: Versions::One,
    looks: true,
    unheard: false,
    by_http: false,
    key_lives: None,
    corrects: false,
    ends_at_answer: false,
    requests: &[Deadline::None; 2],
    input: None,
    accepts: None,
    workers: 2,
    messages: 0,
    faults: any(&[Store, Deaths, Freezes]),
    faults_at_most: 2,
    retention: 24 * 3600,
    work: 0,
    heartbeat: None,
    rows: Rows::None,
    large_bodies: false,
    webhook: false,
    puts_off: false,
    mistakes_callers: false,
    polls: 1,
    long_outage: false,
    ends_calmly: true,
};

/// One message.
pub const ONE_MESSAGE: Option<Input> = Some(Input { keys: &[0], ..INPUT });

/// Two messages with the same key, of a standard queue.
pub const INPUT: Input =
    Input { kind: InputKind::Standard, keys: &[0, 0], batch: 2, consumers: 2, max_attempts: 2 };

/// Consumers of these messages.
pub const MESSAGES: Scenario =
    Scenario { name: "messages of one key", requests: &[], input: Some(INPUT), ..PLAIN };

/// A client whose request is accepted. Its worker dies or is frozen, or the stream loses what would bring one. Another client comes at rest.
pub const ACCEPTED: Scenario = Scenario {
    name: "accepted work",
    requests: ONE,
    accepts: Some(2),
    faults: any(&[Store, Deaths, Freezes, Losses]),
    ..PLAIN
};

/// Those whose handlers, clients and deployments are as they should be.
pub static SCENARIOS: [Scenario; 35] = [
    PLAIN,
    // A client that retries. The store is down while its report is written, and the provider is asked.
    Scenario { name: "deferred reports", faults: any(&[Outages, Queues, Unheard]), ..PLAIN },
    // The provider reports its effect, while two polls ask it.
    Scenario {
        name: "webhook and polls",
        requests: ONE,
        faults: any(&[Outages, Deaths, Freezes, Unheard, Queues]),
        webhook: true,
        polls: 2,
        ends_calmly: false,
        ..PLAIN
    },
    // A record is released, and run again, while its first worker is late.
    Scenario { name: "take-over", faults: any(&[Store, Freezes, Unheard]), ..PLAIN },
    Scenario { name: "refusals", faults: any(&[Outages, Refusals]), ..PLAIN },
    Scenario { name: "late refusals", faults: any(&[Freezes, Unheard, Refusals]), ..PLAIN },
    Scenario { name: "rows", faults: any(&[Store, Outages, Deaths]), rows: Rows::One, ..PLAIN },
    Scenario {
        name: "refused rows",
        requests: &[Deadline::None; 2],
        faults: any(&[Store, Outages, Queues]),
        rows: Rows::Refused,
        ..PLAIN
    },
    // All effects are rows.
    Scenario {
        name: "transactional",
        guarded: Guarded::Transactional,
        faults: any(&[Store, Outages, Deaths, Freezes]),
        rows: Rows::One,
        ..PLAIN
    },
    Scenario {
        name: "rows refused with an answer",
        guarded: Guarded::Transactional,
        faults: any(&[Store, Outages, Deaths]),
        rows: Rows::RefusedWithAnswer,
        ..PLAIN
    },
    Scenario {
        name: "single transaction",
        guarded: Guarded::SingleTransaction,
        requests: &[Deadline::None; 3],
        faults: any(&[Store, Outages, Conflicts, Deaths, Freezes]),
        rows: Rows::One,
        ..PLAIN
    },
    // A call and a commit, each with a recovery point.
    Scenario {
        name: "phases",
        guarded: REMEMBERED,
        faults: any(&[Store, Outages, Deaths, Freezes, Unheard, Queues]),
        rows: Rows::One,
        ..PLAIN
    },
    // The provider honours no keys: an outcome that is not kept is unknown, and asked about.
    Scenario {
        name: "phases without keys",
        guarded: Guarded::Resumed(0),
        faults: any(&[Outages, Deaths, Freezes, Unheard]),
        rows: Rows::One,
        ..PLAIN
    },
    // The provider reports its effect, at any moment.
    Scenario {
        name: "reported phases",
        guarded: REMEMBERED,
        faults: any(&[Store, Deaths, Freezes, Unheard, Queues]),
        rows: Rows::One,
        webhook: true,
        ..PLAIN
    },
    // The stale function looks, while a worker extends its lease.
    Scenario {
        name: "heartbeats",
        faults: any(&[Store, Deaths, Freezes]),
        work: 100,
        heartbeat: Some(40),
        ..PLAIN
    },
    // The body is stored outside its record, and its report may wait until that has been deleted.
    Scenario {
        name: "large bodies",
        faults: any(&[Store, Outages]),
        large_bodies: true,
        long_outage: true,
        ..PLAIN
    },
    // Deadlines that no Lambda function has.
    Scenario {
        name: "past deadlines",
        requests: &[Deadline::At(0), Deadline::At(600_000)],
        faults: any(&[Freezes, Deaths]),
        ..PLAIN
    },
    Scenario {
        name: "far deadlines",
        requests: &[Deadline::At(3_218_000_000_000), Deadline::In(29)],
        faults: any(&[Freezes, Deaths]),
        ..PLAIN
    },
    // A transaction is sent late: another request's answer has been kept, and has expired.
    Scenario {
        name: "late transaction",
        guarded: Guarded::SingleTransaction,
        requests: &[Deadline::None, Deadline::None, Deadline::Later(660)],
        faults: any(&[Store, Freezes, Clocks]),
        retention: 300,
        rows: Rows::One,
        ..PLAIN
    },
    Scenario { name: "clocks", faults: any(&[Freezes, Clocks, Unheard]), ..PLAIN },
    Scenario { name: "conflicts", faults: any(&[Conflicts, Outages, Deaths]), rows: Rows::One, ..PLAIN },
    MESSAGES,
    // The answer of a batch is lost, or what hides and buries its messages. Two keys, of which each has an outcome of its own.
    Scenario {
        name: "messages of two keys",
        input: Some(Input { keys: &[0, 1], ..INPUT }),
        faults: any(&[Deaths, Unheard, Queues]),
        ..MESSAGES
    },
    // One after another, or not at all.
    Scenario {
        name: "messages of a FIFO group",
        input: Some(Input { kind: InputKind::Fifo, keys: &[0, 1], ..INPUT }),
        faults: any(&[Deaths, Freezes, Unheard, Refusals, Queues]),
        ..MESSAGES
    },
    // The report of an effect waits in a queue while its message is acknowledged, or is lost.
    Scenario {
        name: "messages and deferred reports",
        input: Some(Input { keys: &[0], consumers: 2, ..INPUT }),
        faults: any(&[Outages, Unheard, Queues]),
        ..MESSAGES
    },
    // The reconciler answers over HTTP, which no message's function can read.
    Scenario {
        name: "messages found in the wrong kind",
        input: ONE_MESSAGE,
        faults: any(&[Deaths, Freezes, Unheard]),
        mistakes_callers: true,
        ..MESSAGES
    },
    // The provider refuses each effect: dead letters, and what comes back from them.
    Scenario {
        name: "refused messages",
        input: ONE_MESSAGE,
        provider: Provider::Refuses,
        faults: any(&[Outages, Deaths, Unheard, Queues]),
        ..MESSAGES
    },
    // No attempt succeeds.
    Scenario {
        name: "messages without a provider",
        input: ONE_MESSAGE,
        provider: Provider::IsAway,
        faults: any(&[Store, Deaths, Freezes, Queues]),
        ..MESSAGES
    },
    ACCEPTED,
    // The provider refuses, or is not reached. It ends after one execution that did nothing.
    Scenario {
        name: "accepted work without a provider",
        accepts: Some(1),
        faults: any(&[Outages, Unheard, Refusals, Queues]),
        ..ACCEPTED
    },
    // It ends in time. What is left of it, a sweep deletes.
    Scenario {
        name: "accepted work without a worker",
        requests: &[Deadline::None; 2],
        workers: 0,
        faults: any(&[Store, Conflicts, Deaths, Freezes, Losses]),
        ..ACCEPTED
    },
    // All effects are rows, and messages.
    Scenario {
        name: "accepted work with rows",
        guarded: Guarded::Transactional,
        faults: any(&[Store, Outages, Deaths, Losses]),
        rows: Rows::One,
        messages: 1,
        ..ACCEPTED
    },
    // A call and a commit, each with a recovery point. The next worker resumes it.
    Scenario {
        name: "accepted phases",
        guarded: REMEMBERED,
        faults: any(&[Store, Deaths, Freezes, Unheard, Losses]),
        rows: Rows::One,
        messages: 2,
        ..ACCEPTED
    },
    // Two messages of one record. Their deliverer dies or is frozen while another one takes its turn, or their target does not answer.
    Scenario {
        name: "published messages",
        requests: ONE,
        faults: any(&[Store, Deaths, Freezes, Queues, Losses]),
        messages: 2,
        ..PLAIN
    },
    // A row is refused: nothing is published with the answer that is set for that.
    Scenario {
        name: "messages of refused rows",
        guarded: Guarded::Transactional,
        requests: ONE,
        faults: any(&[Store, Outages, Deaths]),
        rows: Rows::RefusedWithAnswer,
        messages: 1,
        ..PLAIN
    },
];
