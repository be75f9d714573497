//! A TCP proxy between functions and the services that they call. It cuts connections at a given byte, or answers instead of the service.
//!
//! 1. It knows just enough HTTP/1.1 to see where messages begin and end; each request is forwarded on its own connection.
//! 2. A rule applies a number of times to requests that contain all of its texts. If several match, the first that is not used up
//!    applies.
//! 3. Requests without a matching rule pass.

use memchr::memmem;
use serde_json::Value;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Until the rule is removed.
pub const ALWAYS: usize = usize::MAX;

/// A proxy, which runs until it is dropped.
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// Where a connection is cut: before the byte with this number. If the message is shorter, after the last byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// Only this much of the request is forwarded.
    Request(usize),
    /// The whole request is forwarded, and only this much of the answer is returned.
    Answer(usize),
}

/// What the caller sees after the cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Then {
    /// The connection is closed on both sides.
    Closed,
    /// Nothing more is sent to either side until the caller closes the connection.
    Silent,
}

/// The lengths of an exchange's messages, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub request: Length,
    pub answer: Length,
}

#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub head: usize,
    pub whole: usize,
}

/// What happens to a request with a matching rule.
#[derive(Clone, Debug)]
pub enum Act {
    Cut(Cut, Then),
    /// The proxy answers with this status and this document. The target never sees the request.
    Answer(u16, Value),
    /// The target gets a transaction twice, the second time under another token, as if the first one's ten minutes were over, so that
    /// only its conditions decide. The second answer is returned.
    TwiceUnderAnotherToken,
}

/// A handle to query a rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleId(usize);

#[derive(Default)]
struct Shared {
    target: OnceLock<String>,
    connections: Mutex<Connections>,
    hangs_up: watch::Sender<()>,
    rules: Mutex<Vec<Rule>>,
    /// Requests that were forwarded whole, with their exchange if the answer came back whole.
    arrived: Mutex<Vec<(Vec<u8>, Option<Exchange>)>>,
}

#[derive(Clone, Copy, Default)]
struct Connections {
    accepted: usize,
    open: usize,
}

struct Rule {
    texts: Vec<String>,
    act: Act,
    /// It applies to each request with this number, among those to which it could apply.
    nth: usize,
    found: usize,
    left: usize,
    used: usize,
}

impl Proxy {
    /// Starts a proxy without a target, for targets whose address is known only after the proxy's address.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port for the proxy");
        Self::of(listener)
    }

    /// Starts a proxy on this runtime.
    pub(super) fn of(listener: TcpListener) -> Self {
        let url = format!("http://{}", listener.local_addr().expect("the proxy's address"));
        let shared = Arc::<Shared>::default();
        let server = tokio::spawn(accept(listener, shared.clone()));
        Self { url, shared, server }
    }

    /// Starts a proxy for `target`, for example `http://127.0.0.1:8000`.
    pub async fn before(target: &str) -> Self {
        let proxy = Self::start().await;
        proxy.leads_to(target);
        proxy
    }

    /// Sets the target, once.
    pub fn leads_to(&self, target: &str) {
        let address = target.strip_prefix("http://").expect("a plain address").trim_end_matches('/');
        self.shared.target.set(address.to_owned()).expect("it leads nowhere yet");
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Cuts requests that contain all of these texts, `times` times.
    pub fn cut(&self, texts: &[&str], cut: Cut, then: Then, times: usize) -> RuleId {
        self.rule(texts, Act::Cut(cut, then), 1, times)
    }

    /// Does this to every `nth` request that contains all of these texts.
    pub fn to_every(&self, nth: usize, texts: &[&str], act: Act) -> RuleId {
        self.rule(texts, act, nth, ALWAYS)
    }

    fn rule(&self, texts: &[&str], act: Act, nth: usize, left: usize) -> RuleId {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let mut rules = self.shared.rules();
        rules.push(Rule { texts, act, nth, found: 0, left, used: 0 });
        RuleId(rules.len() - 1)
    }

    /// Stops all requests that contain all of these texts. Without texts, all requests.
    pub fn away(&self, texts: &[&str], then: Then) -> RuleId {
        self.cut(texts, Cut::Request(0), then, ALWAYS)
    }

    /// How often a rule has applied.
    pub fn used(&self, rule: RuleId) -> usize {
        self.shared.rules()[rule.0].used
    }

    /// From now on everything passes.
    pub fn pass(&self) {
        self.shared.rules().iter_mut().for_each(|rule| rule.left = 0);
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> usize {
        self.shared.connections().accepted
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.shared.connections().open
    }

    /// Closes all connections that wait for a request.
    pub(super) fn hang_up(&self) {
        self.shared.hangs_up.send_replace(());
    }

    /// The last exchange that passed whole with a request that contains all of these texts.
    pub fn passed(&self, texts: &[&str]) -> Option<Exchange> {
        let arrived = self.shared.arrived.lock().unwrap();
        let wanted = |request: &[u8]| texts.iter().all(|text| contains(request, text));
        arrived.iter().rev().find_map(|(request, exchange)| exchange.filter(|_| wanted(request)))
    }

    /// Head and body of every request that was forwarded whole.
    pub fn requests(&self) -> Vec<(String, Vec<u8>)> {
        let arrived = self.shared.arrived.lock().unwrap();
        let parts = |request: &[u8]| {
            let (head, body) = request.split_at(length(request).map_or(request.len(), |length| length.head));
            (String::from_utf8_lossy(head).into_owned(), body.to_vec())
        };
        arrived.iter().map(|(request, _)| parts(request)).collect()
    }

    /// The bodies of the requests that begin with `start` and were forwarded whole. Their answers do not matter.
    pub fn arrived(&self, start: &str) -> Vec<Vec<u8>> {
        let arrived = self.shared.arrived.lock().unwrap();
        let requests = arrived.iter().filter(|(request, _)| request.starts_with(start.as_bytes()));
        let body = |request: &[u8]| request[length(request).map_or(0, |length| length.head)..].to_vec();
        requests.map(|(request, _)| body(request)).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap()
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap()
    }

    fn arrive(&self, request: Vec<u8>) -> usize {
        let mut arrived = self.arrived.lock().unwrap();
        arrived.push((request, None));
        arrived.len() - 1
    }

    fn act_for(&self, request: &[u8]) -> Option<Act> {
        let mut rules = self.rules();
        let mut could = rules
            .iter_mut()
            .filter(|rule| rule.left > 0 && rule.texts.iter().all(|text| contains(request, text)));
        let rule = could.find_map(|rule| {
            rule.found += 1;
            rule.found.is_multiple_of(rule.nth).then_some(rule)
        })?;
        rule.left = if rule.left == ALWAYS { ALWAYS } else { rule.left - 1 };
        rule.used += 1;
        Some(rule.act.clone())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        let shared = shared.clone();
        {
            let mut connections = shared.connections();
            connections.accepted += 1;
            connections.open += 1;
        }
        tokio::spawn(async move {
            // An error means that one side has closed its connection. Dropping both closes the other.
            let _ = serve(client, &shared).await;
            shared.connections().open -= 1;
        });
    }
}

async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut waiting, mut hangs_up) = (Vec::new(), shared.hangs_up.subscribe());
    loop {
        let next = tokio::select! {
            next = message(&mut client, &mut waiting) => next?,
            _ = hangs_up.changed() => None,
        };
        let Some((request, sent)) = next else { return Ok(()) };
        let act = shared.act_for(&request);
        if let Some(Act::Answer(status, document)) = act {
            let body = document.to_string();
            let head = format!("HTTP/1.1 {status} Injected\r\ncontent-length: {}\r\n\r\n", body.len());
            client.write_all(format!("{head}{body}").as_bytes()).await?;
            continue;
        }
        let mut server = TcpStream::connect(shared.target.get().expect("it leads somewhere")).await?;
        server.set_nodelay(true)?;
        if let Some(Act::Cut(Cut::Request(bytes), then)) = act {
            server.write_all(&request[..bytes.min(request.len())]).await?;
            return end(client, server, then).await;
        }
        server.write_all(&request).await?;
        if let Some(Act::TwiceUnderAnotherToken) = act {
            message(&mut server, &mut Vec::new()).await?;
            server = TcpStream::connect(shared.target.get().expect("it leads somewhere")).await?;
            server.write_all(&under_another_token(&request)).await?;
        }
        let place = shared.arrive(request);
        let Some((answer, received)) = message(&mut server, &mut Vec::new()).await? else { return Ok(()) };
        if let Some(Act::Cut(Cut::Answer(bytes), then)) = act {
            client.write_all(&answer[..bytes.min(answer.len())]).await?;
            return end(client, server, then).await;
        }
        client.write_all(&answer).await?;
        shared.arrived.lock().unwrap()[place].1 = Some(Exchange { request: sent, answer: received });
    }
}

/// The signature does not fit the request any more. No local DynamoDB checks it.
fn under_another_token(request: &[u8]) -> Vec<u8> {
    const BEFORE: &[u8] = b"\"ClientRequestToken\":\"";
    let mut again = request.to_vec();
    let token = find(request, BEFORE).expect("a transaction has a token") + BEFORE.len();
    again[token] = if again[token] == b'0' { b'1' } else { b'0' };
    again
}

async fn end(mut client: TcpStream, server: TcpStream, then: Then) -> io::Result<()> {
    if then == Then::Silent {
        let mut ignored = [0; 1024];
        while client.read(&mut ignored).await? > 0 {}
    }
    drop(server);
    Ok(())
}

/// The next message, part of which may have been read already. `None` if the other side has closed.
async fn message(stream: &mut TcpStream, waiting: &mut Vec<u8>) -> io::Result<Option<(Vec<u8>, Length)>> {
    loop {
        if let Some(length) = length(waiting).filter(|length| waiting.len() >= length.whole) {
            let rest = waiting.split_off(length.whole);
            return Ok(Some((std::mem::replace(waiting, rest), length)));
        }
        if stream.read_buf(waiting).await? == 0 {
            return Ok(None);
        }
    }
}

/// The length of the message that begins like this, once its head is complete.
fn length(message: &[u8]) -> Option<Length> {
    let head = find(message, b"\r\n\r\n")? + 4;
    let lines = std::str::from_utf8(&message[..head]).expect("a head is text").lines();
    let header = |wanted: &str| {
        let mut fields = lines.clone().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    let body = match (header("content-length"), header("transfer-encoding")) {
        (Some(length), _) => length.parse().expect("a length is a number"),
        (None, Some(_)) => find(&message[head..], b"0\r\n\r\n")? + 5,
        (None, None) => 0,
    };
    Some(Length { head, whole: head + body })
}

fn contains(bytes: &[u8], text: &str) -> bool {
    find(bytes, text.as_bytes()).is_some()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memmem::find(bytes, wanted)
}
