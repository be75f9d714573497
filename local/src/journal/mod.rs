//! What happened to each idempotency key, in its order: for the page.
//!
//! | who tells it | what |
//! | --- | --- |
//! | `front` | requests with an idempotency key, and their answers |
//! | `status` | what an environment works on, and how its processes end |
//! | `recorder` | calls of the embedded DynamoDB |
//! | `provider` | calls of the provider |
//!
//! A call belongs to the invocation that makes it, and an invocation to the keys that it has touched.

mod call;
mod keys;
mod timeline;

pub use call::Call;
pub use keys::records;
pub use timeline::{Cost, Kind, Sent, Step, Timeline};

use crate::work::Work;
use lambda_idempotency::key::RecordKey;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};
use tokio::sync::watch;

/// Timelines that are kept. The oldest ones go.
const MAX_TIMELINES: usize = 200;
/// Invocations whose calls still find their timelines.
const MAX_INVOCATIONS: usize = 2_000;

/// The timelines of the latest keys.
#[derive(Default)]
pub struct Journal {
    inner: Mutex<Inner>,
    /// The name of the table of records.
    table: OnceLock<String>,
    /// How often it has changed.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    /// How often a timeline was used.
    uses: u64,
    timelines: BTreeMap<u64, Timeline>,
    /// When each timeline was used last.
    used: HashMap<u64, u64>,
    /// By the client's name and its key.
    by_client: HashMap<(String, String), u64>,
    /// By the record's partition key.
    by_record: HashMap<String, u64>,
    /// By the key of a call to the provider.
    by_call: HashMap<String, u64>,
    /// By the id of its request.
    invocations: HashMap<String, Invocation>,
    latest: VecDeque<String>,
    /// What each environment works on.
    working: HashMap<String, String>,
}

#[derive(Default)]
struct Invocation {
    environment: String,
    timelines: Vec<u64>,
}

impl Journal {
    /// Names the table of records. Calls that come before it are not recorded.
    pub fn is_about(&self, table: &str) {
        self.table.get_or_init(|| table.to_owned());
    }

    /// The table of records, if there is one.
    pub fn table(&self) -> Option<&str> {
        self.table.get().map(String::as_str)
    }

    /// A client sends this request with this key. Returns its timeline.
    pub fn asked(&self, request_id: &str, client: (&str, &str), what: &str) -> u64 {
        let mut inner = self.change();
        let id = inner.of_client(client);
        inner.touch(request_id, id);
        inner.add(id, Step::new("client", Kind::Request, what));
        id
    }

    /// The client of this timeline gets this answer.
    pub fn answered(&self, timeline: u64, what: &str) {
        self.change().add(timeline, Step::new("gateway", Kind::Answer, what));
    }

    /// An environment takes this work.
    pub fn took(&self, environment: &str, work: &Work) {
        let mut inner = self.change();
        inner.working.insert(environment.to_owned(), work.request_id.clone());
        inner.invocation(&work.request_id).environment = environment.to_owned();
        // Of records that are known: a stream tells of thousands.
        let mut touched = Vec::new();
        for id in work.records.iter().filter_map(|record| inner.by_record.get(record).copied()) {
            touched.extend(Some(id).filter(|id| !touched.contains(id)));
        }
        for id in touched {
            inner.touch(&work.request_id, id);
            inner.add(id, Step::new(function(environment), Kind::Event, &work.what));
        }
    }

    /// Something happens to an environment and to what it works on: its process crashes, is frozen, runs out of time.
    pub fn happened(&self, environment: &str, what: &str) {
        let mut inner = self.change();
        let Some(request_id) = inner.working.get(environment).cloned() else { return };
        for id in inner.of_invocation(&request_id) {
            inner.add(id, Step::new(environment, Kind::End, what));
        }
    }

    /// An environment has answered, or has ended.
    pub fn is_free(&self, environment: &str) {
        self.lock().working.remove(environment);
    }

    /// DynamoDB has answered a call of this invocation, or of this program.
    pub fn stored(&self, request_id: Option<&str>, program: &str, call: &Call) {
        let mut inner = self.change();
        let environment = request_id.map(|id| inner.invocation(id).environment.clone());
        let environment = environment.filter(|environment| !environment.is_empty());
        let who = environment.as_deref().map_or(program, function).to_owned();
        for (place, record) in call.records.iter().enumerate() {
            let id = inner.of_record(record, request_id);
            if let Some(request_id) = request_id {
                inner.touch(request_id, id);
            }
            let mut step = call.step(&who, inner.timelines[&id].last_seen(record));
            if place > 0 {
                // The round trip is counted once.
                step.cost = Cost::default();
            }
            if let Some(timeline) = inner.timelines.get_mut(&id) {
                timeline.see(record, call.item.as_ref());
            }
            inner.add(id, step);
        }
    }

    /// An environment calls the provider with this key. Returns the timeline, if it is known: a first call belongs to the only key of its
    /// invocation.
    pub fn called(&self, environment: Option<&str>, key: &str, what: &str) -> Option<u64> {
        let mut inner = self.change();
        let request_id = environment.and_then(|environment| inner.working.get(environment));
        let only = request_id.and_then(|id| match &inner.invocations.get(id)?.timelines[..] {
            [only] if inner.timelines.contains_key(only) => Some(*only),
            _ => None,
        });
        let id = inner.by_call.get(key).copied().or(only)?;
        inner.by_call.insert(key.to_owned(), id);
        inner.add(id, Step::new(environment.map_or("somebody", function), Kind::Call, what));
        Some(id)
    }

    /// The provider answers, or its caller leaves.
    pub fn provider(&self, timeline: u64, what: &str) {
        self.change().add(timeline, Step::new("provider", Kind::Answer, what));
    }

    /// The timelines, the newest first.
    pub fn timelines(&self) -> Vec<(u64, String)> {
        let inner = self.lock();
        inner.timelines.iter().rev().map(|(id, timeline)| (*id, timeline.name())).collect()
    }

    /// One timeline.
    pub fn timeline(&self, id: u64) -> Option<Timeline> {
        self.lock().timelines.get(&id).cloned()
    }

    /// The timeline of this client's key, which the page sends first; it begins now, if there is none.
    pub fn of_page(&self, client: (&str, &str), sent: Sent) -> u64 {
        let mut inner = self.change();
        let id = inner.of_client(client);
        if let Some(timeline) = inner.timelines.get_mut(&id) {
            timeline.sent.get_or_insert(sent);
        }
        id
    }

    /// Changes of the journal.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change(&self) -> MutexGuard<'_, Inner> {
        self.changes.send_modify(|changes| *changes += 1);
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn of_client(&mut self, (tenant, key): (&str, &str)) -> u64 {
        let client = (tenant.to_owned(), key.to_owned());
        if let Some(id) = self.by_client.get(&client) {
            return *id;
        }
        let id = self.begin(Timeline::new(tenant, key));
        self.by_client.insert(client, id);
        id
    }

    /// The timeline of a record. That of the client whose request has led to it comes before one of its own.
    fn of_record(&mut self, record: &str, request_id: Option<&str>) -> u64 {
        let parsed = RecordKey::from_partition_key(record);
        let key = parsed.as_ref().map(|parsed| parsed.idempotency_key().as_str()).unwrap_or(record);
        let asked = request_id.and_then(|id| self.invocations.get(id)).map(|found| found.timelines.clone());
        let asked =
            asked.into_iter().flatten().find(|id| self.timelines.get(id).is_some_and(|of| of.key == key));
        let known = asked.or_else(|| self.by_record.get(record).copied());
        let tenant = parsed.as_ref().map(|parsed| parsed.tenant().as_str()).unwrap_or_default();
        let id = known.unwrap_or_else(|| self.of_client((tenant, key)));
        self.by_record.entry(record.to_owned()).or_insert(id);
        id
    }

    /// Begins a timeline. If there are too many, the one that was used least recently goes.
    fn begin(&mut self, timeline: Timeline) -> u64 {
        // Not from 0: after a restart, an address of the page must not lead to another key.
        let id = self.timelines.last_key_value().map_or_else(timeline::now, |(last, _)| last + 1);
        self.timelines.insert(id, timeline);
        self.use_now(id);
        if self.timelines.len() > MAX_TIMELINES {
            let gone =
                self.used.iter().min_by_key(|(_, used)| **used).map(|(id, _)| *id).expect("there are many");
            self.timelines.remove(&gone);
            self.used.remove(&gone);
            let stays = |id: &mut u64| *id != gone;
            self.by_client.retain(|_, id| stays(id));
            self.by_record.retain(|_, id| stays(id));
            self.by_call.retain(|_, id| stays(id));
        }
        id
    }

    fn use_now(&mut self, timeline: u64) {
        self.uses += 1;
        self.used.insert(timeline, self.uses);
    }

    fn invocation(&mut self, request_id: &str) -> &mut Invocation {
        if !self.invocations.contains_key(request_id) {
            self.latest.push_back(request_id.to_owned());
            if self.latest.len() > MAX_INVOCATIONS {
                let gone = self.latest.pop_front().expect("there are many");
                self.invocations.remove(&gone);
            }
        }
        self.invocations.entry(request_id.to_owned()).or_default()
    }

    fn of_invocation(&self, request_id: &str) -> Vec<u64> {
        self.invocations.get(request_id).map(|found| found.timelines.clone()).unwrap_or_default()
    }

    /// This invocation has to do with the timeline: the latest is the last.
    fn touch(&mut self, request_id: &str, timeline: u64) {
        let timelines = &mut self.invocation(request_id).timelines;
        timelines.retain(|other| *other != timeline);
        timelines.push(timeline);
    }

    fn add(&mut self, timeline: u64, step: Step) {
        if let Some(kept) = self.timelines.get_mut(&timeline) {
            kept.add(step);
            self.use_now(timeline);
        }
    }
}

/// `payments` of `payments#1`.
fn function(environment: &str) -> &str {
    environment.split('#').next().unwrap_or(environment)
}

/// The journal, shared.
pub type Shared = Arc<Journal>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn work(request_id: &str, event: &serde_json::Value) -> Work {
        Work::new(request_id.to_owned(), event.to_string().as_bytes())
    }

    fn write(record: &str) -> Call {
        let item = json!({
            "pk": { "S": record }, "sk": { "S": "record" }, "state": { "S": "in_progress" }, "attempts": { "N": "1" },
        });
        let request = json!({ "TableName": "t", "Item": item });
        let answer = json!({ "ConsumedCapacity": { "CapacityUnits": 1.0 } });
        Call::of("t", "PutItem", &request, true, &answer).expect("it is about a record")
    }

    fn steps(journal: &Journal, id: u64) -> Vec<String> {
        let timeline = journal.timeline(id).expect("it is kept");
        timeline.steps.iter().map(|step| format!("{} {}", step.who, step.what)).collect()
    }

    #[test]
    fn a_call_belongs_to_the_only_key_of_its_invocation() {
        let journal = Journal::default();
        let asked = journal.asked("r-1", ("token", "k"), "POST /pay");
        journal.took("pay#1", &work("r-1", &json!({ "requestContext": {} })));
        // The record's tenant is not what the token says.
        journal.stored(Some("r-1"), "sdk", &write("acme#pay#k"));
        let id = journal.called(Some("pay#1"), "call-1", "calls").expect("it is known");
        journal.provider(id, "answers 201");
        journal.happened("pay#1", "is frozen");
        journal.is_free("pay#1");
        journal.happened("pay#1", "works on nothing");
        journal.answered(asked, "answers 201");
        let expected = [
            "client POST /pay",
            "pay reserve: in progress",
            "pay calls",
            "provider answers 201",
            "pay#1 is frozen",
            "gateway answers 201",
        ];
        assert_eq!(
            (steps(&journal, id), journal.timelines().len()),
            (expected.map(str::to_owned).to_vec(), 1)
        );

        // Of a batch, a first call is nobody's, and a later one is the first one's.
        journal.stored(None, "operator", &write("acme#pay#other"));
        let event = json!({ "Records": [{ "key": "acme#pay#k" }, { "key": "acme#pay#other" }, { "key": "acme#pay#gone" }] });
        journal.took("reconcile#1", &work("r-2", &event));
        assert_eq!(journal.called(Some("reconcile#1"), "call-2", "asks"), None);
        assert_eq!(journal.called(Some("reconcile#1"), "call-1", "asks"), Some(id));
        assert_eq!(journal.called(None, "call-3", "asks"), None);
        assert_eq!(journal.timelines().len(), 2, "an event begins no timeline");
    }

    #[test]
    fn the_timeline_that_was_used_least_recently_goes() {
        let journal = Journal::default();
        let first = journal.asked("r", ("acme", "0"), "POST /");
        journal.stored(None, "sdk", &write("acme#pay#1"));
        for number in 1..MAX_TIMELINES {
            journal.asked(&format!("r-{number}"), ("acme", &number.to_string()), "POST /");
        }
        journal.asked("r-0", ("acme", "0"), "POST /");
        journal.asked("r-new", ("acme", "new"), "POST /");
        let names: Vec<_> = journal.timelines().into_iter().map(|(_, name)| name).collect();
        assert_eq!((names.len(), &*names[0]), (MAX_TIMELINES, "acme · new"));
        assert!(journal.timeline(first).is_some() && !names.contains(&"acme · 1".to_owned()));
        journal.stored(None, "sdk", &write("acme#pay#1"));
        let (again, name) = journal.timelines().remove(0);
        assert_eq!(
            (again > first, &*name, steps(&journal, again).len()),
            (true, "acme · 1", 1),
            "it begins anew"
        );
    }
}
