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
mod outbox;
mod timeline;

pub use call::Call;
pub use keys::records;
pub use outbox::Seen;
pub use timeline::{Cost, Kind, Origin, Sent, Step, Timeline};

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
    /// What was sent last to each route.
    by_route: HashMap<String, Sent>,
    /// By the key of a call to the provider.
    by_call: HashMap<String, u64>,
    /// By the id of its request.
    invocations: HashMap<String, Invocation>,
    latest: VecDeque<String>,
    /// What each environment works on.
    working: HashMap<String, String>,
    outbox: outbox::Outbox,
}

/// A timeline in the list of all.
pub struct Listed {
    pub id: u64,
    pub name: String,
    pub origin: Origin,
    /// Operations, and the states of their records.
    pub states: Vec<(String, String)>,
    /// The time of its last step.
    pub at: u64,
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
    pub fn asked(&self, request_id: &str, client: (&str, &str), route: &str, sent: Sent) -> u64 {
        let mut inner = self.change();
        inner.by_route.insert(route.to_owned(), sent.clone());
        let id = inner.of_client(client);
        inner.touch(request_id, id);
        let what = sent.route.split('?').next().unwrap_or_default();
        inner.add(id, Step::new("client", Kind::Request, what));
        if let Some(timeline) = inner.timelines.get_mut(&id) {
            timeline.send(sent);
        }
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
            let is_known = inner.by_record.contains_key(record);
            // What an operator looks for begins no timeline.
            if request_id.is_none() && call.item.is_none() && !is_known {
                continue;
            }
            // Nor does a message that is removed after the timeline of its key.
            let removes = call.removed.iter().any(|(pk, _)| pk == record);
            if removes && call.item.is_none() && !is_known {
                call.removed.iter().for_each(|place| drop(inner.outbox.delivered(place)));
                continue;
            }
            let id = inner.of_record(record, request_id);
            if let Some(request_id) = request_id {
                inner.touch(request_id, id);
            }
            let mut step = call.step(&who, inner.timelines[&id].last_seen(record));
            let removed = call.removed.iter().filter(|(pk, _)| pk == record);
            let topics: Vec<_> = removed.filter_map(|place| inner.outbox.delivered(place)).collect();
            if !topics.is_empty() {
                step.what = format!("has delivered {}: removes it from the outbox", topics.join(", "));
            }
            for (place, topic) in call.published.iter().filter(|((pk, _), _)| pk == record) {
                inner.outbox.published(place, topic, id);
            }
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
    pub fn timelines(&self) -> Vec<Listed> {
        let inner = self.lock();
        let listed = |(id, timeline): (&u64, &Timeline)| Listed {
            id: *id,
            name: timeline.name(),
            origin: timeline.origin(),
            states: timeline.states(),
            at: timeline.at(),
        };
        inner.timelines.iter().rev().map(listed).collect()
    }

    /// The newest timeline of a client's key; of any, if there is none.
    pub fn newest(&self) -> Option<u64> {
        let inner = self.lock();
        let sent = inner.timelines.iter().rev().find(|(_, timeline)| timeline.sent.is_some());
        sent.or_else(|| inner.timelines.last_key_value()).map(|(id, _)| *id)
    }

    /// What this client sends with this key.
    pub fn sent(&self, client: (&str, &str)) -> Option<Sent> {
        let inner = self.lock();
        let id = inner.by_client.get(&(client.0.to_owned(), client.1.to_owned()))?;
        inner.timelines.get(id)?.sent.clone()
    }

    /// What was sent last to this route.
    pub fn sent_to(&self, route: &str) -> Option<Sent> {
        self.lock().by_route.get(route).cloned()
    }

    /// The tenants of the keys, those of the newest first.
    pub fn tenants(&self) -> Vec<String> {
        let mut tenants = Vec::new();
        for timeline in self.lock().timelines.values().rev() {
            if !timeline.tenant.is_empty() && !tenants.contains(&timeline.tenant) {
                tenants.push(timeline.tenant.clone());
            }
        }
        tenants
    }

    /// Whether a function has called the provider.
    pub fn has_calls(&self) -> bool {
        !self.lock().by_call.is_empty()
    }

    /// One timeline.
    pub fn timeline(&self, id: u64) -> Option<Timeline> {
        self.lock().timelines.get(&id).cloned()
    }

    /// The timeline of this client's key, which the page sends first; it begins now, if there is none.
    pub fn of_page(&self, client: (&str, &str)) -> u64 {
        self.change().of_client(client)
    }

    /// What operations have published.
    pub fn outbox(&self) -> Seen {
        self.lock().outbox.seen.clone()
    }

    /// Something has changed that the page shows, and no timeline has.
    pub fn notice(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Changes of the journal.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change(&self) -> MutexGuard<'_, Inner> {
        self.notice();
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

    fn sent(body: &'static str) -> Sent {
        Sent { route: "POST /pay".to_owned(), body: Some(body.into()), ..Sent::default() }
    }

    fn steps(journal: &Journal, id: u64) -> Vec<String> {
        let timeline = journal.timeline(id).expect("it is kept");
        timeline.steps.iter().map(|step| format!("{} {}", step.who, step.what)).collect()
    }

    #[test]
    fn a_call_belongs_to_the_only_key_of_its_invocation() {
        let journal = Journal::default();
        let asked = journal.asked("r-1", ("token", "k"), "POST /pay", sent("{}"));
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
        let first = journal.asked("r", ("acme", "0"), "POST /", sent("{}"));
        journal.stored(None, "sdk", &write("acme#pay#1"));
        for number in 1..MAX_TIMELINES {
            journal.asked(&format!("r-{number}"), ("acme", &number.to_string()), "POST /", sent("{}"));
        }
        journal.asked("r-0", ("acme", "0"), "POST /", sent("{}"));
        journal.asked("r-new", ("acme", "new"), "POST /", sent("{}"));
        let names: Vec<_> = journal.timelines().into_iter().map(|listed| listed.name).collect();
        assert_eq!((names.len(), &*names[0]), (MAX_TIMELINES, "acme · new"));
        assert!(journal.timeline(first).is_some() && !names.contains(&"acme · 1".to_owned()));
        journal.stored(None, "sdk", &write("acme#pay#1"));
        let Listed { id: again, name, .. } = journal.timelines().remove(0);
        assert_eq!(
            (again > first, &*name, steps(&journal, again).len()),
            (true, "acme · 1", 1),
            "it begins anew"
        );
    }

    #[test]
    fn a_key_has_the_request_that_first_did_something() {
        let journal = Journal::default();
        let mut record = write("acme#pay#k");
        let ask = |body| journal.asked("r-1", ("acme", "k"), "POST /pay", sent(body));
        let id = ask("refused by the API");
        ask("not begun");
        journal.stored(Some("r-1"), "sdk", &record);
        let item = record.item.as_mut().expect("it is written");
        (item["state"], item["settled_by"]) =
            (json!({ "S": "failed_retryable" }), json!({ "S": "not_begun" }));
        journal.stored(Some("r-1"), "sdk", &record);
        ask("executed");
        journal.stored(Some("r-1"), "sdk", &write("acme#pay#k"));
        ask("mismatch");
        assert_eq!(journal.sent(("acme", "k")), Some(sent("executed")));
        assert_eq!(journal.sent(("acme", "other")), None);

        // A newer record, of a message: it is listed, and no client has sent it.
        journal.stored(Some("r-2"), "sdk", &write("acme#mail#m"));
        let listed = journal.timelines();
        let shown = |listed: &Listed| (listed.name.clone(), listed.origin, listed.states.clone());
        let state = |operation: &str| vec![(operation.to_owned(), "in_progress".to_owned())];
        assert_eq!(shown(&listed[0]), ("acme · m".to_owned(), Origin::Message, state("mail")));
        assert_eq!(shown(&listed[1]), ("acme · k".to_owned(), Origin::Client, state("pay")));
        assert_eq!(journal.newest(), Some(id));
    }

    #[test]
    fn what_an_operator_only_reads_begins_no_timeline() {
        let journal = Journal::default();
        let key = json!({ "pk": { "S": "acme#pay#gone" }, "sk": { "S": "record" } });
        let read = json!({ "TableName": "t", "Key": key });
        let read = Call::of("t", "GetItem", &read, true, &json!({})).expect("it is about a record");
        journal.stored(None, "operator", &read);
        assert_eq!(journal.newest(), None);
        journal.stored(None, "operator", &write("acme#pay#gone"));
        journal.stored(None, "operator", &read);
        let id = journal.newest().expect("it is written");
        assert_eq!(steps(&journal, id), ["operator reserve: in progress", "operator reads the record"]);
    }
}
