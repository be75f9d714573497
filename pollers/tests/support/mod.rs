//! A function behind the route that invokes it in the local cloud: the library's consumer, whose answers get lost.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    env,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::{FutureExt, future::BoxFuture, stream};
use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::{
    Execution, Failure, Guard, MemoryStore, Operation,
    event::{BatchFunction, Consumer, KeyFrom, MemorySource, SourceKind},
    key::Tenant,
};
use pollers::mapping::Mapping;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, time};
use tower::ServiceExt;

/// Of so many invocations one fails before it begins, and the answer of one is lost.
const FAILED_IN: u64 = 13;
const LOST_IN: u64 = 7;
/// Of so many orders one is not shipped at its first tries.
const NOT_SHIPPED_IN: usize = 300;
const FIRST_TRIES: u32 = 2;
/// So little that an order which was not shipped is handed back, because there is no time for its third try.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(4);
/// If none is done for as long, none will be.
const STALLED: Duration = Duration::from_secs(120);

/// The keys that records have.
pub const CUSTOMERS: usize = 20;

/// How many records a test publishes: `RECORDS=20000` by command.
pub fn records() -> usize {
    env::var("RECORDS").map_or(1_500, |count| count.parse().expect("RECORDS is a number"))
}

/// An order of a customer: of ten, three are published once more.
#[derive(Clone, Debug)]
pub struct Order {
    pub customer: String,
    pub body: String,
}

/// All orders, by customer, in the order of their publication.
pub fn orders(count: usize) -> Vec<Vec<Order>> {
    let of = |customer: usize| {
        let mut last = 0;
        let numbers = (0..count).filter(move |number| number % CUSTOMERS == customer);
        let order = move |(nth, number): (usize, usize)| {
            let is_repeated = [3, 6, 9].contains(&(nth % 10));
            last = if is_repeated { last } else { number };
            Order { customer: format!("c-{customer}"), body: json!({ "id": last }).to_string() }
        };
        numbers.enumerate().map(order).collect()
    };
    (0..CUSTOMERS).map(of).collect()
}

/// The first half of each customer's orders, and the second.
pub fn halves(orders: &[Vec<Order>]) -> [Vec<Vec<Order>>; 2] {
    let halves = orders.iter().map(|orders| orders.split_at(orders.len() / 2));
    let (first, second): (Vec<_>, Vec<_>) =
        halves.map(|(first, second)| (first.to_vec(), second.to_vec())).unzip();
    [first, second]
}

/// What the function did.
#[derive(Clone, Default)]
pub struct Shipped(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    /// The effects, by customer, in their order.
    effects: BTreeMap<String, Vec<u64>>,
    /// Records that an answer acknowledged.
    done: HashSet<String>,
    tries: HashMap<u64, u32>,
    invocations: u64,
    /// How often a record had to come again.
    handed_back: usize,
}

impl Shipped {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ship(self, order: Value) -> Result<(), Failure> {
        let id = order["id"].as_u64().expect("an order has an id");
        let mut book = self.book();
        let tries = book.tries.entry(id).or_default();
        *tries += 1;
        if (id as usize).is_multiple_of(NOT_SHIPPED_IN) && *tries <= FIRST_TRIES {
            return Err(Failure::not_executed("no connection"));
        }
        let customer = format!("c-{}", id as usize % CUSTOMERS);
        book.effects.entry(customer).or_default().push(id);
        Ok(())
    }
}

/// The function in its local cloud.
pub struct Function {
    pub url: String,
    shipped: Shipped,
    done: watch::Receiver<usize>,
}

struct Served<F> {
    function: F,
    shipped: Shipped,
    done: watch::Sender<usize>,
}

impl Function {
    /// One that takes records of this kind.
    pub async fn start(kind: SourceKind, name: &str) -> Self {
        let shipped = Shipped::default();
        let guard =
            Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop").expect("a tenant"));
        let ships = shipped.clone();
        let ship =
            move |_: Execution, order: Value| -> BoxFuture<'static, _> { ships.clone().ship(order).boxed() };
        let consumer = Consumer::new(MemorySource::of(kind, name), KeyFrom::body("/id")).each(guard, ship);
        let (sender, done) = watch::channel(0);
        let served = Arc::new(Served { function: consumer, shipped: shipped.clone(), done: sender });
        let router =
            Router::new().route("/2015-03-31/functions/ship/invocations", post(invoke)).with_state(served);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shipped, done }
    }

    /// A mapping to it.
    pub fn mapping(&self) -> Mapping {
        Mapping {
            function: "ship".to_owned(),
            cloud: self.url.clone(),
            batch_size: 100,
            report_failures: true,
            bisect: true,
            max_retries: -1,
            max_age: -1,
            on_failure: None,
            checkpoints: None,
        }
    }

    /// Waits until so many records are done.
    pub async fn until_done(&self, count: usize) {
        let mut done = self.done.clone();
        while *done.borrow_and_update() < count {
            let goes_on = time::timeout(STALLED, done.changed()).await;
            assert!(
                matches!(goes_on, Ok(Ok(()))),
                "{} of {count} records are done",
                self.shipped.book().done.len()
            );
        }
    }

    /// Each order has one effect, in the order of its customer's publications.
    pub fn assert_shipped(&self, orders: &[Vec<Order>]) {
        let book = self.shipped.book();
        for orders in orders {
            let mut ids: Vec<_> = orders.iter().map(|order| order.body.clone()).collect();
            ids.dedup();
            let customer = &orders[0].customer;
            let shipped = book.effects[customer].iter().map(|id| json!({ "id": id }).to_string());
            assert_eq!(shipped.collect::<Vec<_>>(), ids, "{customer}");
        }
        // Otherwise no answer would have named a record.
        assert!(book.handed_back > 0, "none was handed back");
        println!(
            "{} records, {} invocations, {} handed back",
            book.done.len(),
            book.invocations,
            book.handed_back
        );
    }
}

async fn invoke<F: BatchFunction>(State(served): State<Arc<Served<F>>>, event: String) -> Response {
    let invocation = {
        let mut book = served.shipped.book();
        book.invocations += 1;
        book.invocations
    };
    if invocation.is_multiple_of(FAILED_IN) {
        let error = json!({ "errorMessage": "it was killed" }).to_string();
        return ([("x-amz-function-error", "Unhandled")], error).into_response();
    }
    let ids = ids(&event);
    let mut context = Context::default();
    let deadline =
        (SystemTime::now() + FUNCTION_TIMEOUT).duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    context.deadline = u64::try_from(deadline.as_millis()).expect("milliseconds");
    let event = LambdaEvent::new(serde_json::from_str(&event).expect("an event"), context);
    let answer = served.function.clone().oneshot(event).await.expect("an answer");
    let answer = serde_json::to_value(&answer).expect("JSON");
    if invocation.is_multiple_of(LOST_IN) {
        let lost = stream::iter([Err::<String, _>(std::io::Error::other("the connection is cut"))]);
        return Body::from_stream(lost).into_response();
    }
    let failed = answer["batchItemFailures"].as_array().cloned().unwrap_or_default();
    let failed: Vec<_> = failed.iter().map(|item| item["itemIdentifier"].to_string()).collect();
    let done = ids.into_iter().filter(|(item, _)| !failed.contains(item)).map(|(_, place)| place);
    let count = {
        let mut book = served.shipped.book();
        book.done.extend(done);
        book.handed_back += failed.len();
        book.done.len()
    };
    served.done.send_replace(count);
    axum::Json(answer).into_response()
}

/// What the answer calls each record of an event, and where the record is.
fn ids(event: &str) -> HashMap<String, String> {
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
