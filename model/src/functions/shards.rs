//! Scenarios of shards, whose records the library's consumer takes.

use super::{
    scenario::{
        Fault::{Deaths, Freezes, Outages, Queues, Refusals, Store, Trims, Unheard},
        Input, InputKind, Lanes, Owners, Provider, Scenario, Shard, any,
    },
    scenarios::{INPUT, MESSAGES},
};

/// Two keys, of which one comes twice.
const RECORDS: Input = of(&[0, 1, 0], Lanes::Keys, Owners::One);

const fn of(keys: &'static [u8], lanes: Lanes, owners: Owners) -> Input {
    Input { kind: InputKind::Shard(Shard { lanes, owners, child_at: None }), keys, ..INPUT }
}

/// All of them.
pub static SHARDS: [Scenario; 8] = [
    // The answer of a batch is lost, or its oldest record.
    Scenario {
        name: "records of a shard",
        input: Some(RECORDS),
        faults: any(&[Deaths, Freezes, Unheard, Queues, Trims]),
        ..MESSAGES
    },
    Scenario {
        name: "records and a store that fails",
        input: Some(RECORDS),
        faults: any(&[Store, Outages]),
        ..MESSAGES
    },
    // One after another, or not at all.
    Scenario {
        name: "records of one partition key",
        input: Some(of(&[0, 1], Lanes::One, Owners::One)),
        faults: any(&[Deaths, Freezes, Unheard, Refusals, Queues, Trims]),
        ..MESSAGES
    },
    // The provider refuses each effect: all are parked, and come back from there.
    Scenario {
        name: "refused records",
        input: Some(Input { consumers: 1, ..of(&[0, 1], Lanes::Keys, Owners::One) }),
        provider: Provider::Refuses,
        faults: any(&[Outages, Deaths, Queues]),
        ..MESSAGES
    },
    // No attempt succeeds. What waits, waits within its invocation.
    Scenario {
        name: "records without a provider",
        input: Some(Input { consumers: 1, ..of(&[0, 1], Lanes::One, Owners::One) }),
        provider: Provider::IsAway,
        faults: any(&[Store, Deaths, Freezes, Queues]),
        ..MESSAGES
    },
    // Another consumer gets the shard while one is at work, whose answer comes too late.
    Scenario {
        name: "a rebalanced shard",
        input: Some(of(&[0, 1], Lanes::One, Owners::Two)),
        faults: any(&[Deaths, Freezes, Unheard, Queues]),
        ..MESSAGES
    },
    // The late answer sets the checkpoint.
    Scenario {
        name: "a checkpoint that moves back",
        input: Some(of(&[0, 1], Lanes::One, Owners::TwoThatAnswer)),
        faults: any(&[Deaths, Freezes, Unheard, Queues]),
        ..MESSAGES
    },
    // The last record of a partition key is in a child of the shard. The late answer is about the parent.
    Scenario {
        name: "a shard that is split",
        input: Some(Input {
            kind: InputKind::Shard(Shard {
                lanes: Lanes::One,
                owners: Owners::TwoThatAnswer,
                child_at: Some(1),
            }),
            keys: &[0, 1],
            ..RECORDS
        }),
        faults: any(&[Deaths, Freezes, Unheard, Queues, Trims]),
        ..MESSAGES
    },
];
