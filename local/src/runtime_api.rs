//! The Lambda Runtime API of one execution environment.
//!
//! The crate `lambda-simulator` does not fit here, for four reasons. It parses payloads and answers as JSON and serialises them
//! anew, so their bytes change. It refuses `init/error` from `lambda_runtime`, which sends no content type. An answer that is
//! too large leaves the invocation open instead of failing it. It never drops an invocation. A function needs only the four
//! routes below.

use crate::visitors::guarded;
use axum::{
    Json, Router,
    body::{self, Body},
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use serde_json::json;
use std::{
    error::Error as _,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Lambda's limit for a payload, in both directions.
pub const PAYLOAD_LIMIT: usize = 6_291_556;

/// The Runtime API of one process. Dropping this ends it.
pub struct RuntimeApi {
    pub address: SocketAddr,
    /// Each is a call to `next` that waits for an invocation.
    pub polls: mpsc::UnboundedReceiver<Poll>,
    shared: Arc<Shared>,
    server: JoinHandle<io::Result<()>>,
}

pub type Poll = oneshot::Sender<Invocation>;

/// An invocation, as `next` returns it to the function.
pub struct Invocation {
    pub request_id: String,
    pub function: &'static str,
    pub deadline: SystemTime,
    pub payload: Bytes,
}

/// The function's answer to an invocation.
pub enum Answer {
    Response(Bytes),
    Error(Bytes),
}

struct Shared {
    polls: mpsc::UnboundedSender<Poll>,
    open: Mutex<Option<Open>>,
    init_error: Mutex<Option<Bytes>>,
}

/// The one invocation in progress.
struct Open {
    request_id: String,
    answer: oneshot::Sender<Answer>,
}

impl RuntimeApi {
    pub async fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (sender, polls) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { polls: sender, open: Mutex::default(), init_error: Mutex::default() });
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{request_id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{request_id}/error", post(error))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            .with_state(shared.clone());
        let router = guarded(router);
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, polls, shared, server })
    }

    /// Gives the invocation to the waiting call. Returns it if the process that made the call has gone.
    pub fn defer(&self, poll: Poll, invocation: Invocation) -> Result<oneshot::Receiver<Answer>, Invocation> {
        let (sender, answer) = oneshot::channel();
        *lock(&self.shared.open) = Some(Open { request_id: invocation.request_id.clone(), answer: sender });
        poll.send(invocation).map(|()| answer)
    }

    /// The process reports why it could not start.
    pub fn init_error(&self) -> Option<Bytes> {
        lock(&self.shared.init_error).take()
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn next(State(shared): State<Arc<Shared>>) -> Response {
    let (poll, invocation) = oneshot::channel();
    // When this environment ends, its process is killed. Any answer would only make it panic first.
    if shared.polls.send(poll).is_err() {
        return std::future::pending().await;
    }
    let Ok(invocation) = invocation.await else { return std::future::pending().await };
    let deadline = invocation.deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    // Its digits are those of the request's id: so the journal knows whose a call of the SDK is.
    let trace = invocation.request_id.replace('-', "");
    let arn = format!("arn:aws:lambda:eu-central-1:123456789012:function:{}", invocation.function);
    let mut headers = HeaderMap::new();
    let mut set = |name, value: String| {
        let value = HeaderValue::from_str(&value).expect("these values are plain ASCII");
        headers.insert(HeaderName::from_static(name), value);
    };
    set("content-type", "application/json".to_owned());
    set("lambda-runtime-aws-request-id", invocation.request_id);
    set("lambda-runtime-deadline-ms", deadline.as_millis().to_string());
    set("lambda-runtime-invoked-function-arn", arn);
    set("lambda-runtime-trace-id", format!("Root=1-{}-{};Sampled=0", &trace[..8], &trace[8..]));
    (headers, invocation.payload).into_response()
}

async fn response(
    State(shared): State<Arc<Shared>>,
    Path(request_id): Path<String>,
    request: Request,
) -> Response {
    match read(request.into_body(), PAYLOAD_LIMIT).await {
        Ok(payload) => shared.close(&request_id, Answer::Response(payload)),
        Err(status) => {
            if status == StatusCode::PAYLOAD_TOO_LARGE {
                let error = json!({
                    "errorType": "Function.ResponseSizeTooLarge",
                    "errorMessage": format!(
                        "Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT} bytes)."
                    ),
                });
                shared.close(&request_id, Answer::Error(error.to_string().into()));
            }
            status.into_response()
        }
    }
}

async fn error(
    State(shared): State<Arc<Shared>>,
    Path(request_id): Path<String>,
    request: Request,
) -> Response {
    match read(request.into_body(), PAYLOAD_LIMIT).await {
        Ok(payload) => shared.close(&request_id, Answer::Error(payload)),
        // The process is dying: its exit will be the answer.
        Err(status) => status.into_response(),
    }
}

async fn init_error(State(shared): State<Arc<Shared>>, payload: Bytes) -> Response {
    *lock(&shared.init_error) = Some(payload);
    accepted()
}

/// Reads the whole body: 413 if it is too large, 400 if it breaks off.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, StatusCode> {
    body::to_bytes(body, limit).await.map_err(|error| {
        let too_large = error.source().is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if too_large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST }
    })
}

impl Shared {
    fn close(&self, request_id: &str, answer: Answer) -> Response {
        match lock(&self.open).take_if(|open| open.request_id == request_id) {
            Some(open) => {
                // If the deadline came first, no caller waits any more.
                let _ = open.answer.send(answer);
                accepted()
            }
            None => {
                let error = json!({ "errorType": "InvalidRequestID", "errorMessage": "Invalid request ID" });
                (StatusCode::BAD_REQUEST, Json(error)).into_response()
            }
        }
    }
}

fn accepted() -> Response {
    (StatusCode::ACCEPTED, Json(json!({ "status": "OK" }))).into_response()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
