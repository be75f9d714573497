//! Answers of handlers.

use std::fmt::Write;

use bytes::Bytes;

use crate::random::Random;

/// The answer of a payment, which fits into its record uncompressed.
pub const PAYMENT: &str = r#"{"id":"pay_910a2dec89025cc1","customerId":"c-20391","amountCents":1999,"currency":"EUR","receipt":"https://pay.example.com/r/910a2dec89025cc1","status":"settled"}"#;

/// A larger answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub name: &'static str,
    pub body: Bytes,
}

pub fn larger() -> [Answer; 3] {
    [("20 KB", json(20_000)), ("300 KB", json(300_000)), ("300 KB of noise", noise(300_000))]
        .map(|(name, body)| Answer { name, body: body.into() })
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
