//! A network that fails on demand: an HTTP client for the SDK that plays a script of faults.
//!
//! 1. The fault of a request comes from the first of these that has one: the script of its operation, the script of [`ANY`], the
//!    standing fault of its operation, the standing fault of [`ANY`]. Otherwise it passes.
//! 2. A request is what the SDK sends: each of its retries is a separate request, and takes the next fault.
//! 3. [`Faults::sent`] counts the requests on the wire, after the faults; [`Faults::asked`] those that the SDK wanted to send.

use super::client::plain_http;
use aws_sdk_dynamodb::config::{RuntimeComponents, SharedHttpClient};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Barrier, watch};

/// Every operation.
pub const ANY: &str = "*";

/// A request must arrive to be held back within this time, which is far beyond what any test needs.
const HELD_WITHIN: Duration = Duration::from_secs(180);

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No fault.
    Pass,
    /// The store applies it, then the connection breaks.
    DropAnswer,
    /// The connection breaks before the store sees it.
    DropRequest,
    /// The store applies it. Its answer lacks the current item of a refused write, as that of an old emulator.
    WithoutItem,
    /// The store gets it twice. The second answer is returned.
    Twice,
    /// The store gets a transaction twice, the second time under another token, as if the first one's ten minutes were over, so that only
    /// its conditions decide. The second answer is returned.
    TwiceUnderAnotherToken,
    /// Held back until the test releases it. See [`Late`].
    HoldBack(Late),
    /// Held back until enough requests have reached the barrier.
    Meet(Arc<Barrier>),
    /// Never sent, never answered.
    BlackHole,
    /// Never sent. Answered with this status, 500 or 503.
    Status(u16),
    /// Never sent. Answered as DynamoDB answers in these cases.
    Throttle,
    TransactionConflict,
    /// A transaction is cancelled because another one holds one of its items.
    TransactionCancelled,
    AccessDenied,
    /// The request was signed too long ago.
    ExpiredSignature,
    /// The first try of a transaction is still being applied.
    TransactionInProgress,
}

/// A write that lands late. Its caller gets no answer, and the store gets it when the test decides.
#[derive(Clone, Debug)]
pub struct Late {
    caller_sees: CallerSees,
    kept: Arc<Mutex<VecDeque<(HttpRequest, Wire)>>>,
    number_held: watch::Sender<usize>,
}

#[derive(Clone, Copy, Debug)]
enum CallerSees {
    Nothing,
    TimeOut,
}

impl Late {
    /// The caller waits until its timeouts fire, or until it is dropped.
    pub fn hanging() -> Self {
        Self::new(CallerSees::Nothing)
    }

    /// The caller gets a connection timeout at once.
    pub fn timing_out() -> Self {
        Self::new(CallerSees::TimeOut)
    }

    fn new(caller_sees: CallerSees) -> Self {
        Self { caller_sees, kept: Arc::default(), number_held: watch::Sender::new(0) }
    }

    /// The fault for a script. Each use holds back one more request.
    pub fn fault(&self) -> Fault {
        Fault::HoldBack(self.clone())
    }

    /// Returns when at least `number` requests have been held back.
    pub async fn held(&self, number: usize) {
        let mut held = self.number_held.subscribe();
        let reached = tokio::time::timeout(HELD_WITHIN, held.wait_for(|held| *held >= number)).await;
        assert!(reached.is_ok(), "{number} requests should have been held back by now");
    }

    /// Sends the request that has been held back longest, and returns the store's answer.
    pub async fn release(&self) -> Answer {
        let kept = self.kept.lock().unwrap().pop_front();
        let (request, wire) = kept.expect("no request is held back");
        let response = wire.send(request).await.expect("the store answers a late request");
        let status = response.status().as_u16();
        let body = collect(response).await.expect("the store's answer is whole").into_body();
        let body = body.bytes().expect("the answer was collected");
        Answer { status, body: serde_json::from_slice(body).expect("the store answers in JSON") }
    }

    async fn hold(&self, request: HttpRequest, wire: Wire) -> Result<HttpResponse, ConnectorError> {
        self.kept.lock().unwrap().push_back((request, wire));
        self.number_held.send_modify(|number| *number += 1);
        match self.caller_sees {
            CallerSees::Nothing => std::future::pending().await,
            CallerSees::TimeOut => Err(ConnectorError::timeout("the connection timed out (injected)".into())),
        }
    }
}

/// A store's raw answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// The faulty network. Clones share the network.
#[derive(Clone, Debug)]
pub struct Faults {
    real: SharedHttpClient,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    scripts: HashMap<String, VecDeque<Fault>>,
    standing: HashMap<String, Fault>,
    asked: HashMap<String, usize>,
    sent: HashMap<String, usize>,
    bodies: HashMap<String, Vec<Vec<u8>>>,
}

impl Faults {
    pub fn new() -> Self {
        Self { real: plain_http(), plan: Arc::default() }
    }

    /// Adds faults for the next requests of `operation` (`"PutItem"`, or [`ANY`]), one each.
    pub fn script(&self, operation: &str, faults: impl IntoIterator<Item = Fault>) {
        self.plan.lock().unwrap().scripts.entry(operation.to_owned()).or_default().extend(faults);
    }

    /// Applies `fault` to all requests of `operation` (or [`ANY`]) from now on: the store is taken away.
    pub fn for_all(&self, operation: &str, fault: Fault) {
        self.plan.lock().unwrap().standing.insert(operation.to_owned(), fault);
    }

    /// Forgets scripts and standing faults, but not the counts: the store is back.
    pub fn clear(&self) {
        let mut plan = self.plan.lock().unwrap();
        plan.scripts.clear();
        plan.standing.clear();
    }

    /// How many scripted faults have not happened yet. A test about a fault should end at 0.
    pub fn left(&self) -> usize {
        self.plan.lock().unwrap().scripts.values().map(VecDeque::len).sum()
    }

    /// How many requests of `operation` (or [`ANY`]) went to the store.
    pub fn sent(&self, operation: &str) -> usize {
        count(&self.plan.lock().unwrap().sent, operation)
    }

    /// The bodies of all requests of `operation` that the SDK wanted to send.
    pub fn bodies(&self, operation: &str) -> Vec<Vec<u8>> {
        self.plan.lock().unwrap().bodies.get(operation).cloned().unwrap_or_default()
    }

    /// How many requests of `operation` (or [`ANY`]) the SDK wanted to send.
    pub fn asked(&self, operation: &str) -> usize {
        count(&self.plan.lock().unwrap().asked, operation)
    }
}

fn count(counts: &HashMap<String, usize>, operation: &str) -> usize {
    if operation == ANY { counts.values().sum() } else { counts.get(operation).copied().unwrap_or_default() }
}

impl Plan {
    fn next(&mut self, operation: &str) -> Fault {
        *self.asked.entry(operation.to_owned()).or_default() += 1;
        for script in [operation, ANY] {
            if let Some(fault) = self.scripts.get_mut(script).and_then(VecDeque::pop_front) {
                return fault;
            }
        }
        self.standing.get(operation).or_else(|| self.standing.get(ANY)).cloned().unwrap_or(Fault::Pass)
    }
}

impl HttpClient for Faults {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let real = self.real.http_connector(settings, components);
        SharedHttpConnector::new(Wire { real, plan: self.plan.clone() })
    }
}

/// The connection to the store, counted.
#[derive(Clone, Debug)]
struct Wire {
    real: SharedHttpConnector,
    plan: Arc<Mutex<Plan>>,
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let fault = {
            let (mut plan, operation) = (self.plan.lock().unwrap(), operation_of(&request));
            let body = request.body().bytes().unwrap_or_default().to_vec();
            plan.bodies.entry(operation.clone()).or_default().push(body);
            plan.next(&operation)
        };
        HttpConnectorFuture::new(play(fault, request, self.clone()))
    }
}

impl Wire {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        *self.plan.lock().unwrap().sent.entry(operation_of(&request)).or_default() += 1;
        self.real.call(request).await
    }
}

/// The operation of a request, from its target header: `DynamoDB_20120810.PutItem`.
pub fn operation_of(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

async fn play(fault: Fault, request: HttpRequest, wire: Wire) -> Result<HttpResponse, ConnectorError> {
    match fault {
        Fault::Pass => wire.send(request).await,
        Fault::DropAnswer => {
            collect(wire.send(request).await?).await?;
            Err(broken("after the store had answered"))
        }
        Fault::DropRequest => Err(broken("before the request was sent")),
        Fault::WithoutItem => without_item(collect(wire.send(request).await?).await?),
        Fault::Twice => {
            let again = request.try_clone().expect("a request to DynamoDB is held in memory");
            collect(wire.send(request).await?).await?;
            wire.send(again).await
        }
        Fault::TwiceUnderAnotherToken => {
            let again = under_another_token(&request);
            collect(wire.send(request).await?).await?;
            wire.send(again).await
        }
        Fault::HoldBack(late) => late.hold(request, wire).await,
        Fault::Meet(barrier) => {
            barrier.wait().await;
            wire.send(request).await
        }
        Fault::BlackHole => std::future::pending().await,
        Fault::Status(status) => Ok(error(
            status,
            "com.amazonaws.dynamodb.v20120810#InternalServerError",
            "The request could not be processed because of an internal server error.",
        )),
        Fault::Throttle => Ok(error(
            400,
            "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            "The level of configured provisioned throughput for the table was exceeded.",
        )),
        Fault::TransactionConflict => Ok(error(
            400,
            "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
            "Transaction is ongoing for the item",
        )),
        Fault::TransactionCancelled => Ok(answer(400, &cancelled_by_conflict())),
        Fault::AccessDenied => Ok(access_denied()),
        Fault::ExpiredSignature => Ok(error(
            400,
            "com.amazon.coral.service#InvalidSignatureException",
            "Signature expired: 20261127T073000Z is now earlier than 20261127T074000Z",
        )),
        Fault::TransactionInProgress => Ok(error(
            400,
            "com.amazonaws.dynamodb.v20120810#TransactionInProgressException",
            "The transaction with the given request token is already in progress",
        )),
    }
}

fn under_another_token(request: &HttpRequest) -> HttpRequest {
    let mut again = request.try_clone().expect("a request to DynamoDB is held in memory");
    let mut document: Value =
        serde_json::from_slice(again.body().bytes().expect("a body in memory")).expect("JSON");
    let token = &mut document["ClientRequestToken"];
    assert!(token.is_string(), "a transaction has a token");
    *token = uuid::Uuid::new_v4().to_string().into();
    let body = document.to_string();
    again.headers_mut().insert("content-length", body.len().to_string());
    *again.body_mut() = SdkBody::from(body);
    again
}

/// DynamoDB's answer to a transaction if another one holds its second item.
pub fn cancelled_by_conflict() -> Value {
    json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "Transaction cancelled",
        "CancellationReasons": [
            { "Code": "None" },
            { "Code": "TransactionConflict", "Message": "Transaction is ongoing for the item" },
        ],
    })
}

fn broken(when: &str) -> ConnectorError {
    ConnectorError::io(format!("the connection was closed {when} (injected)").into())
}

/// Reads the answer to its end, so that the store has certainly finished with the request.
async fn collect(mut response: HttpResponse) -> Result<HttpResponse, ConnectorError> {
    let body = response.take_body().collect().await.map_err(ConnectorError::io)?;
    *response.body_mut() = SdkBody::from(body.to_bytes());
    Ok(response)
}

/// The same answer without items.
fn without_item(answered: HttpResponse) -> Result<HttpResponse, ConnectorError> {
    let mut document: Value = serde_json::from_slice(answered.body().bytes().unwrap_or_default())
        .map_err(|error| ConnectorError::other(error.into(), None))?;
    document.as_object_mut().map(|answer| answer.remove("Item"));
    for reason in document["CancellationReasons"].as_array_mut().into_iter().flatten() {
        reason.as_object_mut().map(|reason| reason.remove("Item"));
    }
    Ok(answer(answered.status().as_u16(), &document))
}

/// DynamoDB's answer to a caller that lacks the permission.
pub fn access_denied() -> HttpResponse {
    error(
        400,
        "com.amazon.coral.service#AccessDeniedException",
        "User: tests is not authorized to perform this action because no policy allows it",
    )
}

/// An error in DynamoDB's own form.
fn error(status: u16, kind: &str, message: &str) -> HttpResponse {
    answer(status, &json!({ "__type": kind, "message": message }))
}

fn answer(status: u16, document: &Value) -> HttpResponse {
    let body = document.to_string();
    let status = status.try_into().expect("an HTTP status");
    let mut response = HttpResponse::new(status, SdkBody::from(body));
    let headers = response.headers_mut();
    headers.insert("content-type", "application/x-amz-json-1.0");
    headers.insert("x-amzn-requestid", uuid::Uuid::new_v4().simple().to_string().to_uppercase());
    response
}
