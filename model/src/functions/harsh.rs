//! Scenarios that are as the world is: handlers that do not look, keys that grow old, deployments, environments that end.

use super::{
    scenario::{
        Deadline,
        Fault::{Apart, Conflicts, Deaths, Freezes, Outages, Queues, Store, Unheard},
        Input, Provider, Rows, Scenario, Versions, any,
    },
    scenarios::{ACCEPTED, INPUT, ONE, PLAIN, REMEMBERED},
};

/// All of them.
pub static HARSH: [Scenario; 13] = [
    // A client that retries while its first request waits before its insert. Meanwhile its key has become too old to begin.
    Scenario {
        name: "keys with an age",
        requests: &[Deadline::None, Deadline::After(2)],
        key_lives: Some(1),
        by_http: true,
        faults: any(&[Freezes, Store]),
        ..PLAIN
    },
    // A request that its handler refuses before it does anything, and then a valid one with the same key.
    Scenario {
        name: "corrected requests",
        requests: ONE,
        corrects: true,
        by_http: true,
        faults: any(&[Store, Outages, Deaths]),
        ..PLAIN
    },
    // Nothing can be done, and clients retry: also once operators know.
    Scenario {
        name: "phases without a provider",
        guarded: REMEMBERED,
        provider: Provider::IsAway,
        requests: &[Deadline::None, Deadline::After(2 * 3600)],
        faults: any(&[Unheard]),
        ..PLAIN
    },
    // A handler that stood still past its lease sends its request nevertheless, unless its guard stops it.
    Scenario {
        name: "handlers that do not look",
        looks: false,
        by_http: true,
        requests: &[Deadline::None, Deadline::After(1_000)],
        faults: any(&[Freezes]),
        ..PLAIN
    },
    // The same, for the function of a queue's messages.
    Scenario {
        name: "consumers that do not look",
        looks: false,
        requests: &[],
        input: Some(Input { keys: &[0], batch: 1, ..INPUT }),
        faults: any(&[Freezes]),
        ..PLAIN
    },
    // It ends after one execution, which does nothing: not after a claim whose answer is lost.
    Scenario {
        name: "accepted work that cannot be done",
        accepts: Some(1),
        provider: Provider::IsAway,
        faults: any(&[Store, Outages]),
        ..ACCEPTED
    },
    // The provider does nothing. Then a deployment makes the operation asynchronous, with another rule for fingerprints.
    Scenario {
        name: "work that becomes accepted",
        versions: Versions::BecomesAsynchronous,
        requests: &[Deadline::None; 2],
        faults: any(&[Deaths, Unheard]),
        ..ACCEPTED
    },
    // The provider knows its effect, and wants to be asked in a month what became of it.
    Scenario {
        name: "a provider that asks for patience",
        requests: ONE,
        faults: any(&[Deaths]),
        webhook: true,
        puts_off: true,
        ..PLAIN
    },
    // A commit is refused in nine places, behind a result that takes nearly all room there is.
    Scenario {
        name: "phases with much to keep",
        guarded: REMEMBERED,
        requests: ONE,
        faults: any(&[Deaths]),
        rows: Rows::ManyRefused,
        ..PLAIN
    },
    // The messages of a transaction are seen later than those of the next one.
    Scenario {
        name: "messages that are seen late",
        guarded: REMEMBERED,
        requests: ONE,
        faults: any(&[Apart]),
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
        faults: any(&[]),
        work: 1_200,
        webhook: true,
        ..PLAIN
    },
    // Nothing goes on behind an answer.
    Scenario { name: "environments that end", ends_at_answer: true, faults: any(&[Store]), ..PLAIN },
    // A queue in front of what is accepted. Its table throttles, so that what accepts a message answers 503.
    Scenario {
        name: "messages that are accepted",
        requests: &[],
        input: Some(Input { keys: &[0], consumers: 2, ..INPUT }),
        faults: any(&[Conflicts, Queues]),
        ..ACCEPTED
    },
];
