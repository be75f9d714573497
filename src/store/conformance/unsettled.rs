//! Checks what a store promises if it finds its unsettled records.

use std::{collections::HashSet, time::Duration};

use super::{
    HOUR, NOW, answered, fingerprints, in_progress, load, pending, put, released,
    samples::{self, fresh},
    unique,
};
use crate::{
    key::{RecordKey, Tenant},
    record::{Head, KeptBody, Record, UnknownCause},
    store::{Cursor, Page, Survey, Unsettled},
    time::Timestamp,
};

/// How many records of each kind to write: more than one page of any store that tests use.
const MANY: usize = 130;

/// Runs every check of [`Unsettled`], one after the other. They fail if the store's index lags, as DynamoDB's may.
pub async fn unsettled(store: &dyn Unsettled) {
    unknown_outcomes_are_due_once_their_time_has_come(store).await;
    a_swap_brings_a_record_into_the_index_and_out_of_it(store).await;
    tenants_take_turns_however_many_are_due_of_one(store).await;
    a_turn_leaves_out_what_was_taken(store).await;
    escalated_outcomes_are_listed_and_never_due(store).await;
    operations_between_workers_are_due_until_a_retry_takes_them(store).await;
    a_survey_counts_unknown_outcomes_and_finds_the_oldest(store).await;
    a_survey_counts_operations_between_workers_apart(store).await;
    unresolved_operations_are_listed_page_by_page(store).await;
    a_scan_finds_pending_records_and_those_of_dead_workers(store).await;
    a_limit_holds_for_each_page_and_hides_nothing(store).await;
    super::checkpoints::all(store).await;
    super::not_found::all(store).await;
}

/// [`Unsettled::due`] lists an unknown outcome from its time on, until it is settled.
async fn unknown_outcomes_are_due_once_their_time_has_come(store: &dyn Unsettled) {
    let tenant = unique();
    let record = unknown(&tenant, "due");
    let later = asked(&unknown(&tenant, "later"), 1, NOW.plus(HOUR));
    for record in [&record, &later, &in_progress(&tenant, "in progress", NOW)] {
        put(store, None, record).await;
    }
    let due = async |now| due_of(store, &tenant, now).await;
    assert_eq!(due(NOW.minus(HOUR)).await, [] as [&str; 0]);
    assert_eq!(due(NOW).await, ["due"]);
    assert_eq!(due(NOW.plus(HOUR)).await, ["due", "later"]);
    put(store, Some(record.revision), &released(&record)).await;
    assert_eq!(due(NOW.plus(HOUR)).await, ["later"]);
}

/// As in production, a record is in progress first, and a swap makes it unknown.
async fn a_swap_brings_a_record_into_the_index_and_out_of_it(store: &dyn Unsettled) {
    let tenant = unique();
    let due = async |now| due_of(store, &tenant, now).await;
    let (later, end) = (NOW.plus(HOUR), NOW.plus(2 * HOUR));
    let record = in_progress(&tenant, "due", NOW);
    put(store, None, &record).await;
    assert_eq!(due(end).await, [] as [&str; 0]);

    let unknown = samples::unknown(&record, UnknownCause::LeaseExpired, NOW);
    put(store, Some(record.revision), &unknown).await;
    assert_eq!(due(NOW).await, ["due"]);

    let asked = asked(&unknown, 1, later);
    put(store, Some(unknown.revision), &asked).await;
    assert_eq!(due(later.minus(Duration::from_millis(1))).await, [] as [&str; 0]);
    assert_eq!(due(later).await, ["due"]);

    put(store, Some(asked.revision), &released(&asked)).await;
    assert_eq!(due(end).await, [] as [&str; 0]);
}

/// In a round of [`Unsettled::due`] each tenant has one turn: those that became due first, up to a limit.
async fn tenants_take_turns_however_many_are_due_of_one(store: &dyn Unsettled) {
    const LIMIT: usize = 5;
    let (flood, others) = (unique(), [(); 4].map(|()| unique()));
    let at = |number: usize| NOW.minus(HOUR).plus(Duration::from_millis(number as u64));
    // The longest overdue is neither the first nor the last that is written.
    let numbers = (MANY / 2..MANY).chain(0..MANY / 2);
    let mut records: Vec<_> =
        numbers.map(|number| asked(&unknown(&flood, &format!("{number}")), 1, at(number))).collect();
    for other in &others {
        records.push(asked(&unknown(other, "early"), 1, at(MANY)));
        records.push(asked(&unknown(other, "late"), 1, NOW));
        records.push(asked(&unknown(other, "later"), 1, NOW.plus(HOUR)));
    }
    for record in &records {
        put(store, None, record).await;
    }
    let round = turns(store, NOW, LIMIT, &HashSet::new()).await;
    let turns_of = |tenant: &str| -> Vec<Vec<String>> {
        let of_tenant = round.iter().filter(|turn| turn[0].tenant().as_str() == tenant);
        of_tenant
            .map(|turn| turn.iter().map(|key| key.idempotency_key().as_str().to_owned()).collect())
            .collect()
    };
    assert_eq!(turns_of(&flood), [["0", "1", "2", "3", "4"]]);
    for other in &others {
        assert_eq!(turns_of(other), [["early", "late"]]);
    }
    // The order of the tenants stays the same.
    let again = turns(store, NOW, LIMIT, &HashSet::new()).await;
    let known = |turn: &&Vec<RecordKey>| {
        let tenant = turn[0].tenant().as_str();
        tenant == flood || others.iter().any(|other| other == tenant)
    };
    assert!(round.iter().filter(known).eq(again.iter().filter(known)));
    release_all(store, &records).await;
}

/// What a caller has taken gives way to the rest of its tenant's, even if it fills pages.
async fn a_turn_leaves_out_what_was_taken(store: &dyn Unsettled) {
    let tenant = unique();
    let at = |number: usize| NOW.minus(HOUR).plus(Duration::from_millis(number as u64));
    let records: Vec<_> =
        (0..MANY).map(|number| asked(&unknown(&tenant, &format!("{number}")), 1, at(number))).collect();
    for record in &records {
        put(store, None, record).await;
    }
    let taken = records[..MANY - 1].iter().map(|record| record.key.clone()).collect();
    let left = turns(store, NOW, 2, &taken).await;
    let left: Vec<_> = left.into_iter().flatten().filter(|key| key.tenant().as_str() == tenant).collect();
    assert_eq!(left, [records[MANY - 1].key.clone()]);
    release_all(store, &records).await;
}

/// All turns of a round, those of other checks among them.
async fn turns(
    store: &dyn Unsettled,
    now: Timestamp,
    limit: usize,
    taken: &HashSet<RecordKey>,
) -> Vec<Vec<RecordKey>> {
    let (mut turns, mut from) = (Vec::new(), None::<Cursor>);
    loop {
        let due = store.due(now, from.as_ref(), limit, taken).await.expect("an answer");
        for turn in due.turns {
            assert!((1..=limit).contains(&turn.keys.len()), "{turn:?}");
            assert!(turn.keys.iter().all(|key| key.tenant() == turn.keys[0].tenant()), "{turn:?}");
            turns.push(turn.keys);
        }
        from = due.next;
        if from.is_none() {
            return turns;
        }
    }
}

/// An escalated outcome is listed, and not due. Once it is asked about again, it is due again.
async fn escalated_outcomes_are_listed_and_never_due(store: &dyn Unsettled) {
    let name = unique();
    let tenant = Tenant::parse(&name).expect("a tenant");
    let record = unknown(&name, "for an operator");
    let escalated = asked(&record, 7, Timestamp::MAX);
    put(store, None, &record).await;
    put(store, Some(record.revision), &escalated).await;
    assert_eq!(due_of(store, &name, NOW.plus(HOUR)).await, [] as [&str; 0]);
    let again = asked(&escalated, 0, NOW);
    let seen = escalated.revision;
    assert_eq!(unresolved_of_tenant(store, &tenant).await, [escalated]);

    put(store, Some(seen), &again).await;
    assert_eq!(due_of(store, &name, NOW).await, ["for an operator"]);
    assert_eq!(unresolved_of_tenant(store, &tenant).await, [again]);
}

/// An operation between workers is due once it has waited too long, and not if a retry resumes it before.
async fn operations_between_workers_are_due_until_a_retry_takes_them(store: &dyn Unsettled) {
    let name = unique();
    let tenant = Tenant::parse(&name).expect("a tenant");
    let due = async |now| due_of(store, &name, now).await;
    let end = NOW.plus(samples::RESUME_WITHIN);
    let [resumed, waiting] = ["resumed", "waiting"].map(|key| between_workers(&name, key));
    for record in [&resumed, &waiting] {
        put(store, None, record).await;
    }
    assert_eq!(due(end.minus(Duration::from_millis(1))).await, [] as [&str; 0]);
    assert_eq!(due(end).await, ["resumed", "waiting"]);
    let mut listed = unresolved_of_tenant(store, &tenant).await;
    listed.sort_by_key(|record| record.key.partition_key());
    assert_eq!(listed, [resumed.clone(), waiting.clone()]);

    let again = samples::reservation(resumed.key.clone(), fingerprints("resumed"), NOW.plus(HOUR));
    let again = resumed.again(&again, fresh(), NOW);
    put(store, Some(resumed.revision), &again).await;
    assert_eq!(due(end).await, ["waiting"]);

    let escalated: Record = waiting.not_resumed(fresh()).expect("between workers").into();
    put(store, Some(waiting.revision), &escalated).await;
    assert_eq!(due(end.plus(HOUR)).await, [] as [&str; 0]);
    assert_eq!(unresolved_of_tenant(store, &tenant).await, [escalated]);
}

/// [`Unsettled::survey`] counts at least these: the store may hold others.
async fn a_survey_counts_unknown_outcomes_and_finds_the_oldest(store: &dyn Unsettled) {
    const ESCALATED: u64 = 20;
    let tenant = unique();
    let long_ago = Timestamp::from_millis(7);
    let escalated = |number: u64| -> Record {
        let record = in_progress(&tenant, &number.to_string(), NOW);
        asked(&samples::unknown(&record, UnknownCause::PerhapsExecuted, long_ago), 7, Timestamp::MAX)
    };
    let records: Vec<_> = (0..ESCALATED).map(escalated).chain([unknown(&tenant, "asked about")]).collect();
    for record in &records {
        put(store, None, record).await;
    }
    let survey = store.survey().await.expect("an answer");
    assert!(survey.escalated >= ESCALATED && survey.unknown > survey.escalated, "{survey:?}");
    assert!(survey.oldest.is_some_and(|oldest| oldest <= long_ago), "{survey:?}");
    release_all(store, &records).await;
}

/// They are no unknown outcomes, and have no age as those have.
async fn a_survey_counts_operations_between_workers_apart(store: &dyn Unsettled) {
    const WAITING: u64 = 3;
    let tenant = unique();
    let before = store.survey().await.expect("an answer");
    let mut records: Vec<_> =
        (0..WAITING).map(|number| between_workers(&tenant, &number.to_string())).collect();
    records[0] = records[0].not_resumed(fresh()).expect("between workers").into();
    for record in &records {
        put(store, None, record).await;
    }
    let survey = store.survey().await.expect("an answer");
    assert!(survey.between_workers >= WAITING && survey.escalated >= 1, "{survey:?}");
    // Other checks, and other runs, may change these meanwhile. In a store of its own they stay.
    if before == Survey::NOTHING {
        let expected = Survey { between_workers: WAITING, escalated: 1, ..Survey::NOTHING };
        assert_eq!(survey, expected);
    }
    release_all(store, &records).await;
}

/// Settles these records, so that other checks do not find them.
async fn release_all(store: &dyn Unsettled, records: &[Record]) {
    for record in records {
        put(store, Some(record.revision), &released(record)).await;
    }
}

/// The tenant's keys that are due, sorted.
async fn due_of(store: &dyn Unsettled, tenant: &str, now: Timestamp) -> Vec<String> {
    let turns = turns(store, now, 10_000, &HashSet::new()).await;
    let keys = turns.into_iter().flatten().filter(|key| key.tenant().as_str() == tenant);
    let mut keys: Vec<_> = keys.map(|key| key.idempotency_key().as_str().to_owned()).collect();
    keys.sort();
    keys
}

/// [`Unsettled::unresolved`] lists each of a tenant once, as it is stored, and no other record.
async fn unresolved_operations_are_listed_page_by_page(store: &dyn Unsettled) {
    let name = unique();
    for number in 0..MANY {
        put(store, None, &unknown(&name, &format!("{number}"))).await;
        put(store, None, &unknown(&format!("{name}#"), &format!("{number}"))).await;
    }
    put(store, None, &in_progress(&name, "in progress", NOW)).await;
    put(store, None, &between_workers(&name, "between workers")).await;
    let tenant = Tenant::parse(&name).expect("a tenant");
    let found = unresolved_of_tenant(store, &tenant).await;
    let distinct: HashSet<_> = found.iter().map(|record| record.key.partition_key()).collect();
    assert_eq!((found.len(), distinct.len()), (MANY + 1, MANY + 1), "each once");
    for record in found {
        assert_eq!(record.key.tenant(), &tenant);
        assert_eq!(load(store, &record.key).await, Some(record));
    }
}

async fn unresolved_of_tenant(store: &dyn Unsettled, tenant: &Tenant) -> Vec<Record> {
    let (mut found, mut from) = (Vec::new(), None::<Cursor>);
    loop {
        let page = store.unresolved(Some(tenant), from.as_ref()).await.expect("an answer");
        found.extend(page.records);
        from = page.next;
        if from.is_none() {
            return found;
        }
    }
}

/// [`Unsettled::scan`] finds each waiting or dead record once over all its segments, and no other.
async fn a_scan_finds_pending_records_and_those_of_dead_workers(store: &dyn Unsettled) {
    let tenant = unique();
    let dead = in_progress(&tenant, "dead", NOW.minus(HOUR));
    let pending = pending(&tenant, "pending");
    let completed = in_progress(&tenant, "completed", NOW.minus(HOUR));
    let completed = answered(&completed, Head::Payload, KeptBody::Omitted { length: 0 });
    let live = in_progress(&tenant, "live", NOW.plus(HOUR));
    let unknown = unknown(&tenant, "unknown");
    let between_workers = between_workers(&tenant, "between workers");
    for record in [&dead, &pending, &completed, &live, &unknown, &between_workers] {
        put(store, None, record).await;
    }
    for segments in [1, 3] {
        let mut found = Vec::new();
        for segment in 0..segments {
            found.extend(scan(store, (segment, segments), 1_000).await.0);
        }
        let mut found: Vec<_> = found.into_iter().filter(|record| own(record, &tenant)).collect();
        found.sort_by_key(|record| record.key.partition_key());
        // The others are in the index, and are found there.
        assert_eq!(found, [dead.clone(), pending.clone()], "{segments} segments");
    }
}

/// However small its pages are, a scan ends and hides nothing.
async fn a_limit_holds_for_each_page_and_hides_nothing(store: &dyn Unsettled) {
    let tenant = unique();
    for number in 0..MANY {
        put(store, None, &in_progress(&tenant, &format!("{number}"), NOW.minus(HOUR))).await;
    }
    let (found, pages) = scan(store, (0, 1), 50).await;
    assert_eq!(found.iter().filter(|record| own(record, &tenant)).count(), MANY);
    assert!(pages.iter().all(|page| page.scanned <= 50 && page.unreadable == 0), "{pages:?}");
    assert!(pages.len() > MANY / 50);
}

async fn scan(store: &dyn Unsettled, segment: (u32, u32), limit: u32) -> (Vec<Record>, Vec<Page>) {
    let (mut found, mut pages, mut from) = (Vec::new(), Vec::new(), None::<Cursor>);
    loop {
        let mut page = store.scan(segment, from.as_ref(), NOW, limit).await.expect("an answer");
        found.append(&mut page.records);
        from = page.next.clone();
        pages.push(page);
        if from.is_none() {
            return (found, pages);
        }
    }
}

fn own(record: &Record, tenant: &str) -> bool {
    record.key.tenant().as_str() == tenant
}

fn unknown(tenant: &str, key: &str) -> Record {
    samples::unknown(&in_progress(tenant, key, NOW), UnknownCause::PerhapsExecuted, NOW)
}

fn between_workers(tenant: &str, key: &str) -> Record {
    samples::between_workers(&in_progress(tenant, key, NOW), &[("charge", "1")], NOW)
}

/// The same after this many questions, the next of which is due at `next`.
fn asked(record: &Record, questions: u32, next: Timestamp) -> Record {
    record.postpone(fresh(), questions, None, next, NOW).expect("unknown").into()
}
