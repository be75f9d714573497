//! Guard and raw calls in turn, so that whatever else the machine does hits both.

use aws_sdk_dynamodb::Client;
use bytes::Bytes;
use lambda_idempotency::store::dynamodb::DynamoDbStore;

use crate::{guarded::Front, meter::Spent, random::Random, raw::Calls};

/// Rounds before anything counts: connections, caches, the allocator.
const WARM_UP: u64 = 50;

/// What was measured, one of each a round.
#[derive(Debug, Default)]
pub struct Rounds {
    /// How many calls a guarded operation makes.
    pub calls: usize,
    pub guarded: Vec<Spent>,
    /// The very calls of the guarded one.
    pub raw: Vec<Spent>,
    /// The same once more: the difference between these two is noise.
    pub raw_again: Vec<Spent>,
    /// Two puts or one transaction, the body as it is in the record.
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
        // In another order each time: who comes after whom makes a difference.
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
