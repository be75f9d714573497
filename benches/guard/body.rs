//! Answers by size, as JSON and as incompressible bytes.

use std::fmt::Write;

use bytes::Bytes;

use crate::random::Random;

/// The first is the answer of a payment, which fits into its record uncompressed.
const SIZES: [(&str, usize); 4] = [("200 B", 200), ("1 KB", 1_000), ("20 KB", 20_000), ("300 KB", 300_000)];

/// An answer of the handler.
#[derive(Clone, Debug)]
pub struct Answer {
    pub name: String,
    pub body: Bytes,
}

/// The answers that are measured.
pub fn answers() -> Vec<Answer> {
    let of = |kind: &str, make: fn(usize) -> Vec<u8>| {
        SIZES.map(|(size, bytes)| Answer { name: format!("{size} {kind}"), body: make(bytes).into() })
    };
    [of("json", json), of("noise", noise)].concat()
}

/// A list of payments: ids and amounts differ, names and structure repeat.
fn json(bytes: usize) -> Vec<u8> {
    let mut random = Random(1);
    let mut text = String::from("[");
    while text.len() < bytes {
        let (id, customer, cents) = (random.next(), random.next() % 100_000, random.next() % 1_000_000);
        let payment = write!(
            text,
            r#"{{"id":"pay_{id:016x}","customerId":"c-{customer}","amountCents":{cents},"currency":"EUR","status":"settled"}},"#
        );
        payment.expect("a string takes everything");
    }
    text.truncate(bytes);
    text.into()
}

/// As an image or an archive would be.
fn noise(bytes: usize) -> Vec<u8> {
    let mut random = Random(2);
    (0..bytes).map(|_| random.next().to_be_bytes()[0]).collect()
}
