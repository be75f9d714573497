//! A function behind the route that invokes it in the local cloud: instances of the library's consumer, which die, and whose answers get lost.

mod book;
mod instance;
#[path = "../../../tests/suite/support/mortal.rs"]
mod mortal;
pub mod orders;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::stream;
use lambda_idempotency::{
    MemoryStore,
    event::{BatchFunction, MemorySource, SourceKind},
    queue::MemoryQueue,
    reconcile::Reconciliation,
};
use pollers::mapping::Mapping;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
    time,
};

use self::{
    book::{Book, Shared},
    instance::{Instance, instance, operation},
    orders::{Order, once},
};

/// Of so many invocations one is killed in the middle, one fails before it begins, and the answer of one is lost.
const KILLED_IN: usize = 20;
const FAILED_IN: usize = 13;
const LOST_IN: usize = 7;

/// After "not found", nothing of a killed instance can arrive any more.
const NOT_FOUND_GRACE: Duration = Duration::from_secs(1);
const RECONCILED_EVERY: Duration = Duration::from_millis(100);

/// If nothing happens for as long, nothing will. Only a failure takes as long.
const STALLED: Duration = Duration::from_secs(120);

/// The function in its local cloud.
pub struct Function {
    url: String,
    shared: Shared,
    parked: MemorySource,
    escalated: MemoryQueue,
    reconciliation: Reconciliation,
    /// How many records are done, and how many invocations have begun.
    done: watch::Receiver<usize>,
    begun: watch::Receiver<usize>,
    _runs: JoinSet<()>,
}

struct Served<F> {
    new: Box<dyn Fn() -> Instance<F> + Send + Sync>,
    /// Those that have no invocation.
    idle: Mutex<Vec<Instance<F>>>,
    shared: Shared,
    done: watch::Sender<usize>,
    begun: watch::Sender<usize>,
}

impl Function {
    /// One that takes records of this kind.
    pub async fn start(kind: SourceKind, name: &str) -> Self {
        let (store, shared, escalated) = (MemoryStore::new(), Shared::default(), MemoryQueue::new());
        let parked = MemorySource::of(kind, name);
        let reconciliation = Reconciliation::new(store.clone(), escalated.clone())
            .operation(operation(), shared.clone())
            .not_found_grace(NOT_FOUND_GRACE)
            .backoff(RECONCILED_EVERY, 4 * RECONCILED_EVERY, u32::MAX);
        let of = (store, parked.clone(), shared.clone());
        let new = Box::new(move || instance(of.0.clone(), of.1.clone(), of.2.clone()));
        let ((done, is_done), (begun, has_begun)) = (watch::channel(0), watch::channel(0));
        let served = Arc::new(Served { new, idle: Mutex::default(), shared: shared.clone(), done, begun });
        let router =
            Router::new().route("/2015-03-31/functions/ship/invocations", post(invoke)).with_state(served);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let mut runs = JoinSet::new();
        runs.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, shared, parked, escalated, reconciliation, done: is_done, begun: has_begun, _runs: runs }
    }

    /// Runs a test, while the outcomes that killed instances leave unknown are asked for.
    pub async fn reconciled(&self, test: impl Future<Output = ()>) {
        tokio::select! {
            () = self.reconcile() => unreachable!("it has no end"),
            () = test => {}
        }
    }

    async fn reconcile(&self) {
        loop {
            // What fails is due again.
            let _ = self.reconciliation.poll(Duration::from_secs(5)).await;
            time::sleep(RECONCILED_EVERY).await;
        }
    }

    /// A mapping to it.
    pub fn mapping(&self) -> Mapping {
        Mapping {
            function: "ship".to_owned(),
            cloud: self.url.clone(),
            batch_size: 50,
            report_failures: true,
            bisect: true,
            max_retries: -1,
            max_age: -1,
            on_failure: None,
            checkpoints: None,
        }
    }

    /// Ends a poller while an instance is in the middle of its batch, and starts the next one. It goes on once that has handed records over.
    pub async fn change_poller(
        &self,
        poller: JoinHandle<()>,
        next: impl AsyncFnOnce() -> JoinHandle<()>,
    ) -> JoinHandle<()> {
        let ((held, is_held), (goes_on, released)) = (oneshot::channel(), oneshot::channel());
        self.shared.book().hold = Some((held, released));
        time::timeout(STALLED, is_held).await.expect("an instance runs").expect("it is held");
        poller.abort();
        let _ = poller.await;
        let mut begun = self.begun.clone();
        begun.mark_unchanged();
        let next = next().await;
        time::timeout(STALLED, begun.changed()).await.expect("another one runs").expect("it serves");
        drop(goes_on);
        next
    }

    /// Waits until so many records are done.
    pub async fn until_done(&self, count: usize) {
        let mut done = self.done.clone();
        while *done.borrow_and_update() < count {
            let goes_on = time::timeout(STALLED, done.changed()).await;
            assert!(matches!(goes_on, Ok(Ok(()))), "{} of {count} records are done", *done.borrow());
        }
    }

    /// Whether records of this shard or partition are done.
    pub fn has_done(&self, part: &str) -> bool {
        self.shared.book().done.iter().any(|place| place.contains(part))
    }

    /// Each order has one effect, in the order of its customer's publications, though instances were killed.
    pub fn assert_shipped(&self, orders: &[Vec<Order>]) {
        let book = self.shared.book();
        for orders in orders {
            let customer = &orders[0].customer;
            assert_eq!(book.effects[customer], once(orders), "{customer}");
        }
        assert_eq!(self.parked.take_dead().len() + self.escalated.take().len(), 0, "none is given up");
        let Book { done, invocations, handed_back, killed, timed_out, .. } = &*book;
        let figures = format!(
            "{} records, {invocations} invocations, {killed} killed, {timed_out} timed out, {handed_back} handed back",
            done.len()
        );
        println!("{figures}");
        // Faults that did not happen would prove nothing.
        assert!(*killed > 0 && *handed_back > 0, "{figures}");
    }
}

/// It goes on if its poller ends, as on AWS.
async fn invoke<F: BatchFunction>(State(served): State<Arc<Served<F>>>, event: String) -> Response {
    tokio::spawn(async move { served.invoke(&event).await }).await.expect("no panic")
}

impl<F: BatchFunction> Served<F> {
    async fn invoke(&self, event: &str) -> Response {
        let invocation = {
            let mut book = self.shared.book();
            book.invocations += 1;
            if book.invocations % KILLED_IN == KILLED_IN / 2 {
                // Before or after an effect. If this batch has none, in the next one.
                book.moments_to_kill = 1 + book.invocations / KILLED_IN % 4;
            }
            book.invocations
        };
        self.begun.send_replace(invocation);
        if invocation.is_multiple_of(FAILED_IN) {
            return failed("it did not begin");
        }
        let idle = self.idle().pop();
        let instance = idle.unwrap_or_else(|| (self.new)());
        let Some(answer) = instance.invoke(event).await else { return failed("it was killed") };
        self.idle().push(instance);
        if invocation.is_multiple_of(LOST_IN) {
            let lost = stream::iter([Err::<String, _>(std::io::Error::other("the connection is cut"))]);
            return Body::from_stream(lost).into_response();
        }
        let failed = answer["batchItemFailures"].as_array().cloned().unwrap_or_default();
        let failed: Vec<_> = failed.iter().map(|item| item["itemIdentifier"].to_string()).collect();
        let done =
            places(event).into_iter().filter(|(item, _)| !failed.contains(item)).map(|(_, place)| place);
        let mut book = self.shared.book();
        book.done.extend(done);
        book.handed_back += failed.len();
        self.done.send_replace(book.done.len());
        axum::Json(answer).into_response()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Instance<F>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(why: &str) -> Response {
    ([("x-amz-function-error", "Unhandled")], json!({ "errorMessage": why }).to_string()).into_response()
}

/// What the answer calls each record of an event, and where the record is.
fn places(event: &str) -> HashMap<String, String> {
    let event: Value = serde_json::from_str(event).expect("JSON");
    let kinesis = event["Records"].as_array().into_iter().flatten();
    let kinesis = kinesis
        .map(|record| (record["kinesis"]["sequenceNumber"].to_string(), record["eventID"].to_string()));
    let partitions = event["records"].as_object().into_iter().flatten();
    let kafka = partitions.flat_map(|(partition, records)| {
        records.as_array().into_iter().flatten().map(move |record| {
            let item = json!({ "partition": partition, "offset": record["offset"] }).to_string();
            (item.clone(), item)
        })
    });
    kinesis.chain(kafka).collect()
}
