//! The environments of operations that resume.

use crate::kernel::setting::{Change, Handler, Setting};

const PLAIN: Setting = Setting {
    name: "plain",
    handler: Handler::Resumes,
    window: 20,
    max_questions: 4,
    keys_live: 5,
    ..Setting::QUIET
};

/// The environments.
pub const ALL: [Setting; 13] = [
    PLAIN,
    Setting { name: "asks", keys_live: 0, asks: true, ..PLAIN },
    Setting { name: "no keys", keys_live: 0, ..PLAIN },
    Setting { name: "store", store_faults: true, ..PLAIN },
    Setting { name: "webhook", webhook: true, ..PLAIN },
    Setting { name: "operator", keys_live: 0, operator: true, webhook: true, ..PLAIN },
    Setting { name: "clocks", skew: 1, store_faults: true, ..PLAIN },
    Setting { name: "inserted", workers: 3, change: Change::Inserted, ..PLAIN },
    Setting { name: "renamed", change: Change::Renamed, ..PLAIN },
    Setting { name: "removed", change: Change::Removed, ..PLAIN },
    Setting { name: "reordered", change: Change::Reordered, ..PLAIN },
    Setting { name: "restored", horizon: 4, meddles: true, operator: true, store_faults: true, ..PLAIN },
    Setting { name: "bounds", bounds: true, ..PLAIN },
];

/// The largest environment, with every fault at once.
pub const LARGE: [Setting; 1] = [Setting {
    name: "all phases",
    workers: 3,
    horizon: 8,
    keys_live: 4,
    asks: true,
    store_faults: true,
    webhook: true,
    operator: true,
    skew: 1,
    ..PLAIN
}];
