//! The environments of operations that are executed at once.

use crate::kernel::setting::{Handler, Setting};

/// Two workers, crashes, and a store that fails.
const PLAIN: Setting =
    Setting { name: "plain", horizon: 5, retention: 4, store_faults: true, ..Setting::QUIET };

/// The environments whose every state the tests visit.
pub const WHOLE: [Setting; 10] = [
    PLAIN,
    Setting { name: "rows", rows: true, ..PLAIN },
    Setting { name: "transactional", handler: Handler::Commits, rows: true, heartbeats: true, ..PLAIN },
    Setting { name: "webhook", webhook: true, duplicates: true, ..PLAIN },
    Setting { name: "operator", operator: true, duplicates: true, ..PLAIN },
    Setting { name: "run again", handler: Handler::RunsAgain, ..PLAIN },
    Setting { name: "no queue", queue: false, store_faults: false, provider_lies: true, rows: true, ..PLAIN },
    Setting { name: "another answer", own_words: true, ..PLAIN },
    Setting { name: "bounds", bounds: true, horizon: 4, ..PLAIN },
    Setting {
        name: "bounds and run again",
        bounds: true,
        handler: Handler::RunsAgain,
        store_faults: false,
        ..PLAIN
    },
];

/// The environments that are too large for the tests, which visit their first states.
pub const LARGE: [Setting; 6] = [
    Setting { name: "heartbeats and clocks", heartbeats: true, skew: 1, ..PLAIN },
    Setting { name: "a provider that lies", provider_lies: true, workers: 3, horizon: 6, ..PLAIN },
    Setting { name: "deletions and restores", meddles: true, workers: 3, ..PLAIN },
    Setting { name: "later generations", provider_lies: true, horizon: 10, ..PLAIN },
    Setting { name: "three workers", workers: 3, horizon: 6, duplicates: true, ..PLAIN },
    Setting {
        name: "everything",
        workers: 3,
        horizon: 6,
        rows: true,
        duplicates: true,
        heartbeats: true,
        webhook: true,
        provider_lies: true,
        operator: true,
        meddles: true,
        skew: 1,
        ..PLAIN
    },
];
