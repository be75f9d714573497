//! A function as Lambda runs it: a separate process on the Runtime API, whose standard output and log are kept.

use std::{
    collections::BTreeMap,
    fs::File,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use lambda_idempotency::time::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    sync::{mpsc, oneshot},
    time::timeout,
};
use uuid::Uuid;

use super::local_cloud;

/// Only a function that hangs takes this long.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The time of an invocation, unless a test sets another.
const TIME: Duration = Duration::from_secs(60);

/// A function that waits for invocations. It ends with this value, or with the test process.
pub struct Function {
    api: Api,
    /// The function's calls for the next invocations: one for each that it runs at once.
    nexts: Vec<Next>,
    folder: TempDir,
    // Its open standard input shows that the test process is alive.
    process: Child,
}

struct Api {
    address: String,
    nexts: mpsc::UnboundedReceiver<Next>,
    answers: mpsc::UnboundedReceiver<(Id, Answer)>,
}

type Next = oneshot::Sender<(Id, Bytes, SystemTime)>;

/// Of an invocation.
type Id = String;

/// The result of an invocation: an answer or an error.
pub type Answer = Result<Value, Value>;

impl Function {
    /// Starts the sample's function of this name, in the same program as the local cloud does.
    pub async fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        Self::of(local_cloud::PROGRAM, name, variables).await
    }

    /// Starts the function of this program.
    pub async fn of(program: &str, name: &str, variables: &[(&str, &str)]) -> Self {
        let mut function = Self::spawn(program, name, variables).await;
        function.ready().await;
        function
    }

    /// The log of a function that exits before it asks for work, because its configuration is wrong.
    pub async fn refuses_to_start(name: &str, variables: &[(&str, &str)]) -> String {
        let mut function = Self::spawn(local_cloud::PROGRAM, name, variables).await;
        // Waiting for the process would close its standard input. That ends any function.
        let _lifeline = function.process.stdin.take();
        let ended = timeout(TIMEOUT, function.process.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("the function runs:\n{}", function.log()));
        assert!(!ended.expect("the process can be waited for").success(), "{}", function.log());
        function.log()
    }

    async fn spawn(program: &str, name: &str, variables: &[(&str, &str)]) -> Self {
        let (api, folder) = (Api::listen().await, tempfile::tempdir().expect("a folder"));
        let file = |name| Stdio::from(File::create(folder.path().join(name)).expect("a file"));
        let process = Command::new(program)
            .env_clear()
            .envs([
                ("LOCAL_FUNCTION", name),
                ("AWS_LAMBDA_RUNTIME_API", &api.address),
                ("AWS_LAMBDA_FUNCTION_NAME", name),
                ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
                ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
                ("AWS_REGION", "eu-central-1"),
                ("AWS_ACCESS_KEY_ID", "tests"),
                ("AWS_SECRET_ACCESS_KEY", "tests"),
                ("AWS_EC2_METADATA_DISABLED", "true"),
                ("METRICS_NAMESPACE", "lambda-idempotency"),
            ])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(file("out"))
            .stderr(file("log"))
            .kill_on_drop(true)
            .spawn()
            .expect("the function can be run");
        Self { api, nexts: Vec::new(), folder, process }
    }

    /// Waits until the function asks for one more invocation. By then, one that has answered is completely over.
    pub async fn ready(&mut self) {
        let next = timeout(TIMEOUT, self.api.nexts.recv()).await;
        let next = next.unwrap_or_else(|_| panic!("the function does not ask for work:\n{}", self.log()));
        self.nexts.extend(next);
    }

    /// Invokes it, and waits until it is ready for the next invocation.
    pub async fn invoke(&mut self, event: &Value) -> Answer {
        let begun = self.begin(event, TIME);
        let (id, answer) = self.answer().await;
        assert_eq!(id, begun);
        self.ready().await;
        answer
    }

    /// Invokes it with this much time, without waiting. Returns the id of the invocation.
    pub fn begin(&mut self, event: &Value, time: Duration) -> Id {
        let (next, id) = (self.nexts.pop().expect("it is ready"), Uuid::new_v4().to_string());
        next.send((id.clone(), event.to_string().into(), SystemTime::now() + time)).expect("it still asks");
        id
    }

    /// The next answer, with the id of its invocation.
    pub async fn answer(&mut self) -> (Id, Answer) {
        let answer = timeout(TIMEOUT, self.api.answers.recv()).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer:\n{}", self.log()));
        answer.expect("the Runtime API is up")
    }

    /// Whether it has answered an invocation that [`begin`](Self::begin) started.
    pub fn has_answered(&mut self) -> bool {
        self.api.answers.try_recv().is_ok()
    }

    /// The lines of its standard output: each is a document of metrics.
    pub fn documents(&self) -> Vec<Document> {
        let text = self.read("out");
        text.lines().map(|line| Document::parse(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.read("log")
    }

    /// All of its output, without the tenants in its metrics.
    pub fn output(&self) -> String {
        let documents = self.documents().into_iter().map(|document| Document { tenant: None, ..document });
        format!("{:?}{}", documents.collect::<Vec<_>>(), self.log())
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).expect("the output of the function")
    }
}

/// A document of CloudWatch's embedded metric format.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The time of the document.
    pub at: Timestamp,
    pub namespace: String,
    pub dimensions: Value,
    pub operation: Option<String>,
    pub queue: Option<String>,
    pub tenant: Option<String>,
    /// By name: the value, or the values, and the unit.
    pub metrics: BTreeMap<String, (Value, Option<String>)>,
}

impl Document {
    /// Parses a document. Fails unless it is completely valid.
    fn parse(line: &str) -> Option<Self> {
        let Value::Object(mut whole) = serde_json::from_str(line).ok()? else { return None };
        let aws = whole.remove("_aws")?;
        let at = Timestamp::from_millis(aws["Timestamp"].as_u64()?);
        let [directive] = &aws["CloudWatchMetrics"].as_array()?[..] else { return None };
        let mut metrics = BTreeMap::new();
        for metric in directive["Metrics"].as_array()? {
            let name = metric["Name"].as_str()?;
            let unit = metric.get("Unit").map(|unit| unit.as_str().expect("a unit is text").to_owned());
            metrics.insert(name.to_owned(), (whole.remove(name)?, unit));
        }
        let mut named = |name| whole.remove(name).map(|name| name.as_str().expect("a name").to_owned());
        let (operation, queue, tenant) = (named("operation"), named("queue"), named("tenant"));
        let document = Self {
            at,
            namespace: directive["Namespace"].as_str()?.to_owned(),
            dimensions: directive["Dimensions"].clone(),
            operation,
            queue,
            tenant,
            metrics,
        };
        whole.is_empty().then_some(document)
    }

    /// Its counters, without `api.idempotency.` and `.count`.
    pub fn counts(&self) -> BTreeMap<&str, u64> {
        let counter = |name: &'_ String, value: &Value| -> Option<u64> {
            name.ends_with(".count").then(|| value.as_u64().expect("a count"))
        };
        let counts = self.metrics.iter().filter_map(|(name, (value, _))| {
            let count = counter(name, value)?;
            Some((name.strip_prefix("api.idempotency.")?.strip_suffix(".count")?, count))
        });
        counts.collect()
    }
}

impl Api {
    async fn listen() -> Self {
        let (next, nexts) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(defer))
            .route("/2018-06-01/runtime/invocation/{id}/{answer}", post(answered))
            .with_state((next, answer));
        Self { address: serve(app).await, nexts, answers }
    }
}

type Ends = (mpsc::UnboundedSender<Next>, mpsc::UnboundedSender<(Id, Answer)>);

async fn defer(State((nexts, _)): State<Ends>) -> Response {
    let (next, invocation) = oneshot::channel();
    let handed = nexts.send(next);
    let (Ok(()), Ok((id, event, deadline))) = (handed, invocation.await) else {
        // The test is over.
        return std::future::pending().await;
    };
    let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
    let headers = [
        ("lambda-runtime-aws-request-id", id),
        ("lambda-runtime-deadline-ms", deadline.to_string()),
        (
            "lambda-runtime-invoked-function-arn",
            "arn:aws:lambda:eu-central-1:123456789012:function:f".to_owned(),
        ),
    ];
    (headers, event).into_response()
}

async fn answered(
    State((_, answers)): State<Ends>,
    Path((id, answer)): Path<(Id, String)>,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).expect("an answer is JSON");
    let answer = if answer == "response" { Ok(body) } else { Err(body) };
    // After the test has ended, the channel has no receiver.
    let _ = answers.send((id, answer));
    axum::http::StatusCode::ACCEPTED.into_response()
}

/// SQS queues that accept and keep every message.
#[derive(Clone, Default)]
pub struct Queues(Arc<Mutex<Vec<Value>>>);

impl Queues {
    /// Starts serving them, and returns the address.
    pub async fn start(&self) -> String {
        let kept = self.0.clone();
        let take = move |body: Bytes| async move {
            let message: Value = serde_json::from_slice(&body).expect("a call of SQS");
            kept.lock().unwrap().push(message);
            Json(json!({ "MessageId": "1", "MD5OfMessageBody": "" }))
        };
        format!("http://{}", serve(Router::new().fallback(take)).await)
    }

    /// The bodies of all messages.
    pub fn messages(&self) -> Vec<String> {
        self.calls().iter().map(|call| call["MessageBody"].as_str().expect("a body").to_owned()).collect()
    }

    /// All calls.
    pub fn calls(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }
}

async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
