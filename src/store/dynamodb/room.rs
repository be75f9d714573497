//! How much body a record's item has room for within one capacity unit: a duplicate of a record is billed by the size of
//! the record.

use crate::record::{Note, Record, State};

/// A completed record's item without partition key, headers and body, in bytes as DynamoDB counts them: names and
/// values. Measured by a test below.
const FIXED_SIZE: usize = 386;

/// What a capacity unit of a write covers, in bytes.
const CAPACITY_UNIT: usize = 1024;

/// How many bytes of body the record's item has room for within one capacity unit.
pub(super) fn for_body(record: &Record) -> usize {
    let headers: usize = match &record.state {
        // A list's element costs 1 byte, a list 3; a header is a list of two.
        State::Completed { answer, .. } => {
            answer.head.headers().iter().map(|(name, value)| name.len() + value.len() + 6).sum()
        }
        _ => 0,
    };
    let note =
        |name: &str, note: &Option<Note>| note.as_ref().map_or(0, |note| name.len() + note.as_str().len());
    let notes = note("origin", &record.origin)
        + note("last_failure", &record.last_failure)
        + note("settled_note", &record.settled_note);
    CAPACITY_UNIT.saturating_sub(FIXED_SIZE + record.key.partition_key().len() + headers + notes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sdk_dynamodb::types::AttributeValue;
    use bytes::Bytes;

    use super::*;
    use crate::{
        record::{
            Encoding, Head, KeptAnswer, KeptBody, Revision, Worker,
            tests::{answer, bid},
        },
        store::dynamodb::{Attributes, to_item},
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);

    fn completed(answer: KeptAnswer) -> Record {
        let reserved = Record::reserve(&bid("k"), Revision::mint(), NOW);
        let reserved = Record { retention: Some(Duration::from_millis(86_400_001)), ..reserved };
        reserved.complete(Worker::of(&reserved), Revision::mint(), answer, NOW).unwrap()
    }

    /// The size of an item as DynamoDB counts it.
    fn size(item: &Attributes) -> usize {
        fn value(attribute: &AttributeValue) -> usize {
            match attribute {
                AttributeValue::S(text) => text.len(),
                AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
                AttributeValue::B(bytes) => bytes.as_ref().len(),
                AttributeValue::L(list) => 3 + list.iter().map(|element| 1 + value(element)).sum::<usize>(),
                other => panic!("{other:?} in a record"),
            }
        }
        item.iter().map(|(name, attribute)| name.len() + value(attribute)).sum()
    }

    #[test]
    fn a_record_whose_body_fills_its_room_costs_one_capacity_unit_and_not_a_half() {
        let mut kept = answer();
        let headers = vec![("content-type".into(), "application/json".into()); 3];
        kept.head = Head::Http { status: 201, headers };
        let room = for_body(&completed(kept.clone()));
        let bytes = Bytes::from(vec![b'x'; room]);
        kept.body = KeptBody::Inline { length: room as u64, bytes, encoding: Encoding::Identity };
        let size = size(&to_item(&completed(kept)).unwrap());
        assert!((CAPACITY_UNIT - 64..=CAPACITY_UNIT).contains(&size), "{size}");
    }
}
