//! What a function returns comes back as it was, with the features of this package alone.

use lambda_idempotency::{Failure, Guard, MemoryStore, Operation, key::Tenant};
use serde_json::{Value, json};

// The default parser of serde_json reads a neighbour of each of these.
const RATES: [f64; 3] = [117.633_311_394_000_17, 1.577_777_777_777_000_1, 10_587.436_593_658_975];

#[tokio::test]
async fn a_retry_gets_the_same_numbers_to_the_last_bit() {
    let guard = Guard::new(MemoryStore::new(), Operation::new("quote"), Tenant::parse("shop").unwrap());
    for _ in 0..2 {
        let input = json!({ "currency": "EUR", "of": RATES });
        let quote = async |_, _: Value| Ok::<_, Failure>((RATES.to_vec(), json!(RATES)));
        let (rates, as_json) = guard.run(&["order-1"], input, quote).await.unwrap().value;
        let bits = |rates: Vec<f64>| rates.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(rates), RATES.map(f64::to_bits));
        assert_eq!(bits(serde_json::from_value(as_json).unwrap()), RATES.map(f64::to_bits));
    }
}
