//! Runs guarded and raw calls in turn, so that other work of the machine affects both.

use aws_sdk_dynamodb::Client;
use bytes::Bytes;
use lambda_idempotency::store::dynamodb::DynamoDbStore;

use crate::{guarded::Front, meter::Spent, random::Random, raw::Calls};

/// Rounds before the measurement, which warm up connections, caches and the allocator.
const WARM_UP: u64 = 50;

/// The measurements, one of each kind a round.
#[derive(Debug, Default)]
pub struct Rounds {
    /// How many calls a guarded operation makes.
    pub calls: usize,
    pub guarded: Vec<Spent>,
    /// The same calls as the guarded operation.
    pub raw: Vec<Spent>,
    /// The same once more: the difference between these two is noise.
    pub raw_again: Vec<Spent>,
    /// Two puts or one transaction, with the uncompressed body in the record.
    pub by_hand: Vec<Spent>,
}

/// Measures this many rounds of `front` on the DynamoDB that `client` reaches.
pub async fn measure(client: &Client, table: &str, front: Front, body: &Bytes, rounds: u64) -> Rounds {
    let store = DynamoDbStore::from_client(client.clone(), table);
    let guarded = front.guard(store, body.clone());
    let calls = Calls::recorded(client, table, front, body).await;
    let by_hand = calls.with_body_in_record(body);
    let (mut measured, mut random) = (Rounds { calls: calls.count(), ..Rounds::default() }, Random(3));
    for round in 0..WARM_UP + rounds {
        // The order changes each time, because a call affects the next one.
        let mut order = [0, 1, 2, 3];
        (1..4).for_each(|last| order.swap(last, random.below(last + 1)));
        for which in order {
            let number = round * 4 + which;
            let (spent, kept) = match which {
                0 => (guarded(number).await, &mut measured.guarded),
                1 => (calls.send(client, number).await, &mut measured.raw),
                2 => (calls.send(client, number).await, &mut measured.raw_again),
                _ => (by_hand.send(client, number).await, &mut measured.by_hand),
            };
            if round >= WARM_UP {
                kept.push(spent);
            }
        }
    }
    measured
}
