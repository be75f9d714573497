//! The scenarios: small environments, each with what may go wrong in it.

use super::scenario::{Deadline, Faults, Guarded, Input, Provider, Rows, Scenario, Versions};

pub const NO_FAULTS: Faults = Faults {
    store: false,
    outages: false,
    conflicts: false,
    deaths: false,
    freezes: false,
    clocks: false,
    provider: false,
    refusals: false,
    apart: false,
    queues: false,
    losses: false,
};

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
    faults: Faults { store: true, deaths: true, freezes: true, ..NO_FAULTS },
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

/// Two messages with the same key, of a standard queue.
pub const INPUT: Input = Input { is_fifo: false, keys: &[0, 0], batch: 2, consumers: 2, max_attempts: 2 };

/// Consumers of these messages.
const MESSAGES: Scenario =
    Scenario { name: "messages of one key", requests: &[], input: Some(INPUT), ..PLAIN };

/// A client whose request is accepted. Its worker dies or is frozen, or the stream loses what would bring one. Another client comes at rest.
pub const ACCEPTED: Scenario = Scenario {
    name: "accepted work",
    requests: &[Deadline::None],
    accepts: Some(2),
    faults: Faults { store: true, deaths: true, freezes: true, losses: true, ..NO_FAULTS },
    ..PLAIN
};

/// Those whose handlers, clients and deployments are as they should be.
pub static SCENARIOS: [Scenario; 35] = [
    PLAIN,
    // A client that retries. The store is down while its report is written, and the provider is asked.
    Scenario {
        name: "deferred reports",
        faults: Faults { outages: true, queues: true, provider: true, ..NO_FAULTS },
        ..PLAIN
    },
    // The provider reports its effect, while two polls ask it.
    Scenario {
        name: "webhook and polls",
        requests: &[Deadline::None],
        faults: Faults {
            outages: true,
            deaths: true,
            freezes: true,
            provider: true,
            queues: true,
            ..NO_FAULTS
        },
        webhook: true,
        polls: 2,
        ends_calmly: false,
        ..PLAIN
    },
    // A record is released, and run again, while its first worker is late.
    Scenario {
        name: "take-over",
        faults: Faults { store: true, freezes: true, provider: true, ..NO_FAULTS },
        ..PLAIN
    },
    Scenario { name: "refusals", faults: Faults { outages: true, refusals: true, ..NO_FAULTS }, ..PLAIN },
    Scenario {
        name: "late refusals",
        faults: Faults { freezes: true, provider: true, refusals: true, ..NO_FAULTS },
        ..PLAIN
    },
    Scenario {
        name: "rows",
        faults: Faults { store: true, outages: true, deaths: true, ..NO_FAULTS },
        rows: Rows::One,
        ..PLAIN
    },
    Scenario {
        name: "refused rows",
        requests: &[Deadline::None; 2],
        faults: Faults { store: true, outages: true, queues: true, ..NO_FAULTS },
        rows: Rows::Refused,
        ..PLAIN
    },
    // All effects are rows.
    Scenario {
        name: "transactional",
        guarded: Guarded::Transactional,
        faults: Faults { store: true, outages: true, deaths: true, freezes: true, ..NO_FAULTS },
        rows: Rows::One,
        ..PLAIN
    },
    Scenario {
        name: "rows refused with an answer",
        guarded: Guarded::Transactional,
        faults: Faults { store: true, outages: true, deaths: true, ..NO_FAULTS },
        rows: Rows::RefusedWithAnswer,
        ..PLAIN
    },
    Scenario {
        name: "single transaction",
        guarded: Guarded::SingleTransaction,
        requests: &[Deadline::None; 3],
        faults: Faults {
            store: true,
            outages: true,
            conflicts: true,
            deaths: true,
            freezes: true,
            ..NO_FAULTS
        },
        rows: Rows::One,
        ..PLAIN
    },
    // A call and a commit, each with a recovery point.
    Scenario {
        name: "phases",
        guarded: Guarded::Resumed(24 * 3600),
        faults: Faults {
            store: true,
            outages: true,
            deaths: true,
            freezes: true,
            provider: true,
            queues: true,
            ..NO_FAULTS
        },
        rows: Rows::One,
        ..PLAIN
    },
    // The provider honours no keys: an outcome that is not kept is unknown, and asked about.
    Scenario {
        name: "phases without keys",
        guarded: Guarded::Resumed(0),
        faults: Faults { outages: true, deaths: true, freezes: true, provider: true, ..NO_FAULTS },
        rows: Rows::One,
        ..PLAIN
    },
    // The provider reports its effect, at any moment.
    Scenario {
        name: "reported phases",
        guarded: Guarded::Resumed(24 * 3600),
        faults: Faults {
            store: true,
            deaths: true,
            freezes: true,
            provider: true,
            queues: true,
            ..NO_FAULTS
        },
        rows: Rows::One,
        webhook: true,
        ..PLAIN
    },
    // The stale function looks, while a worker extends its lease.
    Scenario {
        name: "heartbeats",
        faults: Faults { store: true, deaths: true, freezes: true, ..NO_FAULTS },
        work: 100,
        heartbeat: Some(40),
        ..PLAIN
    },
    // The body is stored outside its record, and its report may wait until that has been deleted.
    Scenario {
        name: "large bodies",
        faults: Faults { store: true, outages: true, ..NO_FAULTS },
        large_bodies: true,
        long_outage: true,
        ..PLAIN
    },
    // Deadlines that no Lambda function has.
    Scenario {
        name: "past deadlines",
        requests: &[Deadline::At(0), Deadline::At(600_000)],
        faults: Faults { freezes: true, deaths: true, ..NO_FAULTS },
        ..PLAIN
    },
    Scenario {
        name: "far deadlines",
        requests: &[Deadline::At(3_218_000_000_000), Deadline::In(29)],
        faults: Faults { freezes: true, deaths: true, ..NO_FAULTS },
        ..PLAIN
    },
    // A transaction is sent late: another request's answer has been kept, and has expired.
    Scenario {
        name: "late transaction",
        guarded: Guarded::SingleTransaction,
        requests: &[Deadline::None, Deadline::None, Deadline::Later(660)],
        faults: Faults { store: true, freezes: true, clocks: true, ..NO_FAULTS },
        retention: 300,
        rows: Rows::One,
        ..PLAIN
    },
    Scenario {
        name: "clocks",
        faults: Faults { freezes: true, clocks: true, provider: true, ..NO_FAULTS },
        ..PLAIN
    },
    Scenario {
        name: "conflicts",
        faults: Faults { conflicts: true, outages: true, deaths: true, ..NO_FAULTS },
        rows: Rows::One,
        ..PLAIN
    },
    MESSAGES,
    // The answer of a batch is lost, or what hides and buries its messages. Two keys, of which each has an outcome of its own.
    Scenario {
        name: "messages of two keys",
        input: Some(Input { keys: &[0, 1], ..INPUT }),
        faults: Faults { deaths: true, provider: true, queues: true, ..NO_FAULTS },
        ..MESSAGES
    },
    // One after another, or not at all.
    Scenario {
        name: "messages of a FIFO group",
        input: Some(Input { is_fifo: true, keys: &[0, 1], ..INPUT }),
        faults: Faults {
            deaths: true,
            freezes: true,
            provider: true,
            refusals: true,
            queues: true,
            ..NO_FAULTS
        },
        ..MESSAGES
    },
    // The report of an effect waits in a queue while its message is acknowledged, or is lost.
    Scenario {
        name: "messages and deferred reports",
        input: Some(Input { keys: &[0], consumers: 2, ..INPUT }),
        faults: Faults { outages: true, provider: true, queues: true, ..NO_FAULTS },
        ..MESSAGES
    },
    // The reconciler answers over HTTP, which no message's function can read.
    Scenario {
        name: "messages found in the wrong kind",
        input: Some(Input { keys: &[0], ..INPUT }),
        faults: Faults { deaths: true, freezes: true, provider: true, ..NO_FAULTS },
        mistakes_callers: true,
        ..MESSAGES
    },
    // The provider refuses each effect: dead letters, and what comes back from them.
    Scenario {
        name: "refused messages",
        input: Some(Input { keys: &[0], ..INPUT }),
        provider: Provider::Refuses,
        faults: Faults { outages: true, deaths: true, provider: true, queues: true, ..NO_FAULTS },
        ..MESSAGES
    },
    // No attempt succeeds.
    Scenario {
        name: "messages without a provider",
        input: Some(Input { keys: &[0], ..INPUT }),
        provider: Provider::IsAway,
        faults: Faults { store: true, deaths: true, freezes: true, queues: true, ..NO_FAULTS },
        ..MESSAGES
    },
    ACCEPTED,
    // The provider refuses, or is not reached. It ends after one execution that did nothing.
    Scenario {
        name: "accepted work without a provider",
        accepts: Some(1),
        faults: Faults { outages: true, provider: true, refusals: true, queues: true, ..NO_FAULTS },
        ..ACCEPTED
    },
    // It ends in time. What is left of it, a sweep deletes.
    Scenario {
        name: "accepted work without a worker",
        requests: &[Deadline::None; 2],
        workers: 0,
        faults: Faults { conflicts: true, ..ACCEPTED.faults },
        ..ACCEPTED
    },
    // All effects are rows, and messages.
    Scenario {
        name: "accepted work with rows",
        guarded: Guarded::Transactional,
        faults: Faults { store: true, outages: true, deaths: true, losses: true, ..NO_FAULTS },
        rows: Rows::One,
        messages: 1,
        ..ACCEPTED
    },
    // A call and a commit, each with a recovery point. The next worker resumes it.
    Scenario {
        name: "accepted phases",
        guarded: Guarded::Resumed(24 * 3600),
        faults: Faults {
            store: true,
            deaths: true,
            freezes: true,
            provider: true,
            losses: true,
            ..NO_FAULTS
        },
        rows: Rows::One,
        messages: 2,
        ..ACCEPTED
    },
    // Two messages of one record. Their deliverer dies or is frozen while another one takes its turn, or their target does not answer.
    Scenario {
        name: "published messages",
        requests: &[Deadline::None],
        faults: Faults { store: true, deaths: true, freezes: true, queues: true, losses: true, ..NO_FAULTS },
        messages: 2,
        ..PLAIN
    },
    // A row is refused: nothing is published with the answer that is set for that.
    Scenario {
        name: "messages of refused rows",
        guarded: Guarded::Transactional,
        requests: &[Deadline::None],
        faults: Faults { store: true, outages: true, deaths: true, ..NO_FAULTS },
        rows: Rows::RefusedWithAnswer,
        messages: 1,
        ..PLAIN
    },
];
