//! Checks that messages are committed with their record, in order, and stay until they are removed.

use super::{put, refused, released, reserved};
use crate::{
    record::Record,
    store::{Companion, Outbox, OutboxMessage, WriteOutcome},
    time::Timestamp,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);

/// Runs every check of the outbox, one after the other.
pub async fn outbox(store: &dyn Outbox) {
    messages_come_back_in_their_order_until_they_are_removed(store).await;
    a_refused_record_publishes_nothing(store).await;
    a_message_is_never_overwritten(store).await;
}

fn message(record: &Record, sequence: u32) -> OutboxMessage {
    OutboxMessage {
        key: record.key.clone(),
        created_at: record.created_at,
        sequence,
        first: sequence,
        topic: "order.placed".to_owned(),
        body: format!(r#"{{"n":{sequence},"text":"ü\n"}}"#),
        published_at: NOW,
    }
}

fn companions(messages: &[OutboxMessage]) -> Vec<Companion> {
    messages.iter().cloned().map(Companion::Message).collect()
}

async fn undelivered(store: &dyn Outbox, record: &Record) -> Vec<OutboxMessage> {
    store.undelivered(&record.key).await.expect("an answer to a read")
}

async fn messages_come_back_in_their_order_until_they_are_removed(store: &dyn Outbox) {
    let (first, other) = (reserved("key"), reserved("another"));
    assert_eq!(undelivered(store, &first).await, []);
    // Numbers are in order, not their digits; and the messages of a later record of the key come behind.
    let mut messages: Vec<_> = [9, 10, 11].map(|sequence| message(&first, sequence)).into();
    let later =
        Record { created_at: Timestamp::from_millis(first.created_at.as_millis() + 1), ..first.clone() };
    messages.push(message(&later, 0));
    let shuffled: Vec<_> = [3, 1, 2, 0].map(|place: usize| messages[place].clone()).into();
    let written = store.put(None, &first, &companions(&shuffled)).await.expect("an answer to a write");
    assert_eq!(written, WriteOutcome::Written);
    assert_eq!(undelivered(store, &first).await, messages);
    assert_eq!(undelivered(store, &other).await, []);
    for left in (0..messages.len()).rev() {
        // Twice: a removal whose answer was lost.
        for _ in 0..2 {
            store.remove(&messages[messages.len() - 1 - left]).await.expect("it is removed");
        }
        assert_eq!(undelivered(store, &first).await, messages[messages.len() - left..]);
    }
}

async fn a_refused_record_publishes_nothing(store: &dyn Outbox) {
    let first = reserved("key");
    put(store, None, &first).await;
    let next = released(&first);
    let messages = companions(&[message(&next, 0)]);
    let stale = store.put(Some(next.revision), &next, &messages).await.expect("an answer to a write");
    assert_eq!(stale, refused(&first));
    assert_eq!(undelivered(store, &first).await, []);
}

async fn a_message_is_never_overwritten(store: &dyn Outbox) {
    let first = reserved("key");
    let published = message(&first, 0);
    let written = store.put(None, &first, &companions(std::slice::from_ref(&published))).await;
    assert_eq!(written.expect("an answer to a write"), WriteOutcome::Written);
    let (next, mut second) = (released(&first), published.clone());
    second.body = "null".to_owned();
    let denied = store.put(Some(first.revision), &next, &companions(&[message(&next, 1), second])).await;
    assert_eq!(denied.expect("an answer to a write"), WriteOutcome::Denied(vec![1]));
    assert_eq!(undelivered(store, &first).await, [published]);
}
