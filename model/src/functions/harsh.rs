//! Scenarios that are as the world is: handlers that do not look, keys that grow old, deployments, environments that end.

use super::{
    scenario::{Deadline, Faults, Guarded, Input, Provider, Rows, Scenario, Versions},
    scenarios::{ACCEPTED, INPUT, NO_FAULTS, PLAIN},
};

/// All of them.
pub static HARSH: [Scenario; 13] = [
    // A client that retries while its first request waits before its insert. Meanwhile its key has become too old to begin.
    Scenario {
        name: "keys with an age",
        requests: &[Deadline::None, Deadline::After(2)],
        key_lives: Some(1),
        by_http: true,
        faults: Faults { freezes: true, store: true, ..NO_FAULTS },
        ..PLAIN
    },
    // A request that its handler refuses before it does anything, and then a valid one with the same key.
    Scenario {
        name: "corrected requests",
        requests: &[Deadline::None],
        corrects: true,
        by_http: true,
        faults: Faults { store: true, outages: true, deaths: true, ..NO_FAULTS },
        ..PLAIN
    },
    // Nothing can be done, and clients retry: also once operators know.
    Scenario {
        name: "phases without a provider",
        guarded: Guarded::Resumed(24 * 3600),
        provider: Provider::IsAway,
        requests: &[Deadline::None, Deadline::After(2 * 3600)],
        faults: Faults { provider: true, ..NO_FAULTS },
        ..PLAIN
    },
    // A handler that stood still past its lease sends its request nevertheless, unless its guard stops it.
    Scenario {
        name: "handlers that do not look",
        looks: false,
        by_http: true,
        requests: &[Deadline::None, Deadline::After(1_000)],
        faults: Faults { freezes: true, ..NO_FAULTS },
        ..PLAIN
    },
    // The same, for the function of a queue's messages.
    Scenario {
        name: "consumers that do not look",
        looks: false,
        requests: &[],
        input: Some(Input { keys: &[0], batch: 1, ..INPUT }),
        faults: Faults { freezes: true, ..NO_FAULTS },
        ..PLAIN
    },
    // It ends after one execution, which does nothing: not after a claim whose answer is lost.
    Scenario {
        name: "accepted work that cannot be done",
        accepts: Some(1),
        provider: Provider::IsAway,
        faults: Faults { store: true, outages: true, ..NO_FAULTS },
        ..ACCEPTED
    },
    // The provider does nothing. Then a deployment makes the operation asynchronous, with another rule for fingerprints.
    Scenario {
        name: "work that becomes accepted",
        versions: Versions::BecomesAsynchronous,
        requests: &[Deadline::None; 2],
        faults: Faults { deaths: true, provider: true, ..NO_FAULTS },
        ..ACCEPTED
    },
    // The provider knows its effect, and wants to be asked in a month what became of it.
    Scenario {
        name: "a provider that asks for patience",
        requests: &[Deadline::None],
        faults: Faults { deaths: true, ..NO_FAULTS },
        webhook: true,
        puts_off: true,
        ..PLAIN
    },
    // A commit is refused in nine places, behind a result that takes nearly all room there is.
    Scenario {
        name: "phases with much to keep",
        guarded: Guarded::Resumed(24 * 3600),
        requests: &[Deadline::None],
        faults: Faults { deaths: true, ..NO_FAULTS },
        rows: Rows::ManyRefused,
        ..PLAIN
    },
    // The messages of a transaction are seen later than those of the next one.
    Scenario {
        name: "messages that are seen late",
        guarded: Guarded::Resumed(24 * 3600),
        requests: &[Deadline::None],
        faults: Faults { apart: true, ..NO_FAULTS },
        rows: Rows::One,
        messages: 2,
        ..PLAIN
    },
    // Two handlers that run without a guard send their requests after their leases, and die. Only the provider knows of two effects.
    Scenario {
        name: "effects that only the provider knows",
        looks: false,
        unheard: true,
        requests: &[Deadline::None, Deadline::After(1_000)],
        faults: NO_FAULTS,
        work: 1_200,
        webhook: true,
        ..PLAIN
    },
    // Nothing goes on behind an answer.
    Scenario {
        name: "environments that end",
        ends_at_answer: true,
        faults: Faults { store: true, ..NO_FAULTS },
        ..PLAIN
    },
    // A queue in front of what is accepted. Its table throttles, so that what accepts a message answers 503.
    Scenario {
        name: "messages that are accepted",
        requests: &[],
        input: Some(Input { keys: &[0], consumers: 2, ..INPUT }),
        faults: Faults { conflicts: true, queues: true, ..NO_FAULTS },
        ..ACCEPTED
    },
];
