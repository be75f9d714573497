//! How much body fits in a record's item within one capacity unit: a duplicate request is billed by the size of the record.

use crate::record::{Note, Phase, Record, Reference, State};

/// The size of a completed record's item without partition key, headers and body, in bytes as DynamoDB counts them: names and
/// values, including `with_writes` and `messages`, which not every record has. A test below measures it.
const FIXED_SIZE: usize = 419;

/// The bytes that one write capacity unit covers.
const CAPACITY_UNIT: usize = 1024;

/// An item holds 400 KB (409,600 bytes) including its names. Keys take up to 2,048 bytes, and our attributes some more.
pub(super) const MAX_BODY_BYTES: usize = 406_000;

/// How many bytes of body fit in the record's item within one capacity unit.
pub(super) fn for_body(record: &Record) -> usize {
    let headers: usize = match &record.state {
        // A list costs 3 bytes and each element 1; a header is a list of two.
        State::Completed { answer, .. } => {
            answer.head.headers().iter().map(|(name, value)| name.len() + value.len() + 6).sum()
        }
        _ => 0,
    };
    let note =
        |name: &str, note: &Option<Note>| note.as_ref().map_or(0, |note| name.len() + note.as_str().len());
    let notes = note("origin", &record.origin)
        + note("last_failure", &record.last_failure)
        + note("note", &record.note);
    let transactional = if record.is_transactional() { "transactional".len() + 1 } else { 0 };
    let kind = record.answer_kind.name().len();
    let own = record.key.partition_key().len() + headers + notes + kind + transactional + phases(record);
    CAPACITY_UNIT.saturating_sub(FIXED_SIZE + own)
}

/// The length of a result's digest.
const DIGEST: usize = 23;

/// The size of what a completed record says of its phases: names, digests, times and references.
fn phases(record: &Record) -> usize {
    let Some(phases) = record.phases() else { return 0 };
    // A map or a list costs 3 bytes, and each of its entries and elements 1.
    let reference = |reference: &Reference| 1 + 3 + 2 + reference.provider().len() + reference.id().len();
    let size = |phase: &Phase| {
        let references: usize = phase.references.iter().map(reference).sum();
        let references = if references == 0 { 0 } else { 1 + "references".len() + 3 + references };
        1 + 3 + 3 + "name".len() + phase.name.len() + "result".len() + DIGEST + "at".len() + 8 + references
    };
    let kept: usize = phases.kept.iter().map(size).sum();
    let kept = if kept == 0 { 0 } else { "phases".len() + 3 + kept };
    "resume_within".len() + 8 + kept
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sdk_dynamodb::types::AttributeValue;
    use bytes::Bytes;

    use super::*;
    use crate::{
        record::{
            Encoding, Head, KeptAnswer, KeptBody, MAX_PHASES, ReservationRequest, Revision, phase_of,
            tests::{Mint, Reports, answer, reservation, resuming},
        },
        store::dynamodb::{Attributes, to_item},
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);

    fn completed(answer: KeptAnswer) -> Record {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let reserved = Record { retention: Duration::from_millis(86_400_001), ..reserved };
        reserved.complete(&reserved, Revision::mint(), answer, NOW).unwrap().into()
    }

    /// The size of an item as DynamoDB counts it.
    fn size(item: &Attributes) -> usize {
        fn value(attribute: &AttributeValue) -> usize {
            match attribute {
                AttributeValue::S(text) => text.len(),
                AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
                AttributeValue::B(bytes) => bytes.as_ref().len(),
                AttributeValue::Bool(_) => 1,
                AttributeValue::M(map) => 3 + map.len() + size(map),
                AttributeValue::L(list) => 3 + list.iter().map(|element| 1 + value(element)).sum::<usize>(),
                other => panic!("{other:?} in a record"),
            }
        }
        item.iter().map(|(name, attribute)| name.len() + value(attribute)).sum()
    }

    #[test]
    fn a_record_whose_body_fills_its_capacity_fits_one_capacity_unit() {
        let mut kept = answer();
        let headers = vec![("content-type".into(), "application/json".into()); 3];
        kept.head = Head::Http { status: 201, headers: headers.into() };
        let capacity = for_body(&completed(kept.clone()));
        let bytes = Bytes::from(vec![b'x'; capacity]);
        kept.body = KeptBody::Inline { length: capacity as u64, bytes, encoding: Encoding::Identity };
        let record = Record { with_writes: true, messages: 99, ..completed(kept) };
        let size = size(&to_item(&record).unwrap());
        assert!((CAPACITY_UNIT - 64..=CAPACITY_UNIT).contains(&size), "{size}");
    }

    // T38
    #[test]
    fn what_is_left_of_phases_counts_toward_the_capacity() {
        let day = Duration::from_millis(86_400_001);
        let resumes = ReservationRequest { effects: resuming(day), retention: day, ..reservation("k") };
        let mut record = Record::reserve(&resumes, Revision::mint(), NOW);
        for (place, name) in ["charge", "shipment-with-a-long-name", "refund"].into_iter().enumerate() {
            let phase = phase_of(name.into(), Some("1".repeat(600)), NOW);
            record = record.keep(&record, place, &phase, Revision::mint(), NOW).unwrap().into();
        }
        let completed = |answer| record.complete(&record, Revision::mint(), answer, NOW).unwrap();
        // As it is when the body is placed.
        let capacity = for_body(&Record { state: completed(answer()).state.clone(), ..record.clone() });
        let bytes = Bytes::from(vec![b'x'; capacity]);
        let body = KeptBody::Inline { length: capacity as u64, bytes, encoding: Encoding::Identity };
        let record =
            Record { with_writes: true, messages: 99, ..completed(KeptAnswer { body, ..answer() }).into() };
        let size = size(&to_item(&record).unwrap());
        assert!((CAPACITY_UNIT - 64..=CAPACITY_UNIT).contains(&size), "{size}");
    }

    // T38: whatever was made can be kept, and operators can settle it.
    #[test]
    fn the_record_of_all_possible_phases_fits_in_an_item() {
        let resumes = ReservationRequest { effects: resuming(Duration::from_secs(1)), ..reservation("k") };
        let mut record = Record::reserve(&resumes, Revision::mint(), NOW);
        for place in 0..MAX_PHASES {
            let noted = phase_of(format!("{place:+<64}"), Some("1".repeat(300)), NOW);
            let all_places = serde_json::to_string(&Vec::from_iter(0..97)).unwrap();
            let reference = Reference::new("p".repeat(255), "r".repeat(255)).unwrap();
            let references = vec![reference; 4];
            let phase = Phase { references, ..phase_of(format!("{place:-<64}"), Some(all_places), NOW) };
            record = record.keep(&record, place, &phase, Revision::mint(), NOW).unwrap().into();
            assert!(
                record.note(&noted, Revision::mint(), NOW).is_ok() == (place + 1 < MAX_PHASES),
                "{place}"
            );
        }
        let headers = vec![("x".repeat(1_024).as_str().into(), "y".repeat(1_016).as_str().into()); 32];
        let head = Head::Http { status: 201, headers: headers.into() };
        let settled = record.settle(
            crate::record::Verdict::Executed(KeptAnswer { head, ..answer() }),
            crate::record::SettledBy::Operator,
            Revision::mint(),
            NOW.plus(Duration::from_secs(100_000)),
        );
        for record in [&record, &*settled.unwrap()] {
            let size = size(&to_item(record).unwrap());
            assert!(size < MAX_BODY_BYTES, "{}: {size}", record.state.name());
        }
    }
}
