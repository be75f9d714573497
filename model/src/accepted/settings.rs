//! The environments of accepted work.

use crate::kernel::setting::{Handler, Setting};

const CALLS: Setting = Setting {
    name: "calls",
    max_attempts: 2,
    claim: 4,
    retention: 20,
    lives: 1,
    store_faults: true,
    losses: true,
    ..Setting::QUIET
};

/// The environments.
pub const ALL: [Setting; 14] = [
    CALLS,
    Setting { name: "one attempt", max_attempts: 1, ..CALLS },
    Setting { name: "commits", handler: Handler::Commits, rows: true, workers: 3, ..CALLS },
    // Without faults of the store: a report of "nothing done" that is repeated counts twice.
    Setting { name: "runs again", handler: Handler::RunsAgain, ..CALLS },
    Setting { name: "resumes", handler: Handler::Resumes, operator: true, ..CALLS },
    Setting { name: "lies", provider_lies: true, store_faults: false, ..CALLS },
    Setting { name: "webhooks", provider_lies: true, webhook: true, store_faults: false, ..CALLS },
    Setting { name: "lives", lives: 2, retention: 2, horizon: 9, claim: 3, store_faults: false, ..CALLS },
    Setting {
        name: "messages",
        handler: Handler::Resumes,
        rows: true,
        messages: true,
        horizon: 5,
        losses: false,
        ..CALLS
    },
    Setting { name: "clocks", skew: 1, operator: true, ..CALLS },
    Setting { name: "deleted or restored", meddles: true, lives: 2, losses: false, ..CALLS },
    Setting {
        name: "rows deleted or restored",
        handler: Handler::Commits,
        rows: true,
        meddles: true,
        lives: 2,
        ..CALLS
    },
    Setting { name: "bounds", bounds: true, store_faults: false, ..CALLS },
    Setting {
        name: "bounds of what resumes",
        bounds: true,
        handler: Handler::Resumes,
        store_faults: false,
        losses: false,
        ..CALLS
    },
];

/// The largest environment, with every fault at once.
pub const LARGE: [Setting; 1] = [Setting {
    name: "all of them",
    workers: 3,
    horizon: 8,
    lives: 2,
    retention: 3,
    webhook: true,
    provider_lies: true,
    operator: true,
    meddles: true,
    skew: 1,
    ..CALLS
}];
