//! Receives dead letters from their queue, hides them from others meanwhile, and shows them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::terminal::harmless;
use aws_sdk_sqs::{
    Client,
    types::{Message, MessageSystemAttributeName},
};
use futures_util::{StreamExt, future::try_join_all, stream};
use lambda_idempotency::{key::RecordKey, operator, store::Store, time::Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    args::{DeadLetters, Global},
    context::{self, Context},
    failure::Failure,
    output::{cell, iso, span, state_cell},
    queue,
};

/// How long received dead letters are hidden from others: as long as an operator may take to answer.
const HIDDEN_SECS: i32 = 300;

/// Empty answers after which a queue counts as empty. SQS asks only some of its servers each time, so one empty answer is not enough.
const EMPTY_ANSWERS: u32 = 2;

/// The most that one call can receive.
const MOST_RECEIVED: usize = 10;

/// How many calls are made at once.
const AT_ONCE: usize = 8;

/// The queue of dead letters.
pub struct DeadLetterQueue<'a> {
    pub client: Client,
    pub url: &'a str,
}

/// A dead letter.
pub struct DeadLetter {
    message: Message,
    pub kind: String,
    /// Why it was sent, if the message contains a reason.
    reason: Option<String>,
    /// Its record, if that can be read.
    pub record: Option<RecordKey>,
    /// The state of its record, once that is read.
    state: Option<&'static str>,
    /// Its record and the queue that it goes to; `None` if it stays.
    pub destination: Option<(RecordKey, Queue)>,
}

/// The dead letters that were received. The queue is not ordered, so any other dead letter may have been left out.
pub struct Looked {
    /// The queue's name.
    queue: String,
    pub dead_letters: Vec<DeadLetter>,
    /// Whether the queue may hold more.
    pub more: bool,
}

/// The attributes of a message that a consumer of this library has sent to its dead letters.
const REASON: &str = "idempotency-reason";
const CONSUMERS_ATTRIBUTES: [&str; 2] = [REASON, "idempotency-message-id"];

#[derive(Clone, Copy, PartialEq)]
pub enum Queue {
    Checks,
    Reconcile,
    DeferredReports,
    Outbox,
    Work,
}

impl Queue {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checks => "checks",
            Self::Reconcile => "reconcile",
            Self::DeferredReports => "deferred-reports",
            Self::Outbox => "outbox",
            Self::Work => "work",
        }
    }
}

impl DeadLetter {
    fn new(message: Message) -> Self {
        #[derive(Default, Deserialize)]
        struct Explained {
            reason: Option<String>,
        }
        let body = message.body().unwrap_or_default();
        let Explained { reason } = serde_json::from_str(body).unwrap_or_default();
        let attributes = message.message_attributes();
        let buried = attributes.and_then(|attributes| attributes.get(REASON)?.string_value());
        let reason = reason.or_else(|| buried.map(str::to_owned));
        let operator::MessageSummary { kind, record, queue, .. } = operator::MessageSummary::read(body);
        let queue = match queue {
            Some("checks") => Some(Queue::Checks),
            Some("reconcile") => Some(Queue::Reconcile),
            Some("deferred-reports") => Some(Queue::DeferredReports),
            Some("outbox") => Some(Queue::Outbox),
            Some("work") => Some(Queue::Work),
            _ => None,
        };
        // Those of `stale` and `reconcile` have no attributes. Those of a consumer have, and their bodies are what anybody sent: only a
        // delivery and accepted work, which the outbox and a worker consume, go back. They name what to do, and cannot do anything else.
        let consumed = matches!(queue, Some(Queue::Outbox | Queue::Work));
        let is_ours = attributes.is_none_or(|attributes| match consumed {
            true => attributes.keys().all(|name| CONSUMERS_ATTRIBUTES.contains(&&**name)),
            false => attributes.is_empty(),
        });
        let destination = record.clone().zip(queue).filter(|_| is_ours);
        let kind = kind.unwrap_or_else(|| operator::MessageSummary::NO_KIND.to_owned());
        Self { message, kind, reason, record, state: None, destination }
    }

    pub fn id(&self) -> String {
        self.message.message_id().unwrap_or_default().to_owned()
    }

    /// When it was first sent. SQS deletes it 14 days later, whatever queues it has been in since.
    fn sent_at(&self) -> Option<Timestamp> {
        let attributes = self.message.attributes()?;
        let at = attributes.get(&MessageSystemAttributeName::SentTimestamp)?.parse().ok()?;
        Some(Timestamp::from_millis(at))
    }

    /// Why it is here: the reason in the message, or where it can be found.
    fn why(&self) -> String {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct FailedRun {
            #[serde(rename = "requestContext")]
            context: Context,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Context {
            condition: String,
            function_arn: String,
        }
        if let Some(reason) = &self.reason {
            return reason.clone();
        }
        let log = |function| format!("it failed too often: the log of `{function}` says why");
        match &*self.kind {
            "check" | "sweep" => log("stale"),
            "ask" | "provider_report" | "deferred_report" => log("reconcile"),
            "deliver" => log("outbox"),
            "work" => log("your worker"),
            "poison" => "a stream record that cannot be read".to_owned(),
            "failed_run" => {
                let FailedRun { context } = serde_json::from_str(self.body()).unwrap_or_default();
                format!("{} of {}", context.condition, context.function_arn)
            }
            _ => String::new(),
        }
    }

    pub fn body(&self) -> &str {
        self.message.body().unwrap_or_default()
    }

    /// Whether it matches the ids, the kinds, the record and the tenant that were asked for. A criterion that was not given matches all.
    fn is_chosen(&self, args: &DeadLetters) -> bool {
        (args.id.is_empty() || args.id.contains(&self.id()))
            && (args.kind.is_empty() || args.kind.contains(&self.kind))
            && args.record.as_ref().is_none_or(|record| self.record.as_ref() == Some(record))
            && args
                .tenant
                .as_ref()
                .is_none_or(|tenant| self.record.as_ref().map(RecordKey::tenant) == Some(tenant))
    }

    pub fn json(&self, whole: bool) -> Value {
        let key = self.record.as_ref().map(RecordKey::partition_key);
        let to = self.destination.as_ref().map(|(_, queue)| queue.name());
        let mut json = json!({
            "message_id": self.id(),
            "kind": self.kind,
            "reason": self.reason,
            "sent_at": self.sent_at().and_then(iso),
            "record": key,
            "state": self.state,
            "to": to,
        });
        if whole {
            json["body"] = json!(self.body());
        }
        json
    }
}

impl<'a> DeadLetterQueue<'a> {
    pub async fn open(global: &Global, args: &'a DeadLetters) -> Result<Self, Failure> {
        let url = queue::named(args.queue.as_deref(), "DEAD_LETTERS_QUEUE_URL")?;
        let client = queue::client(&context::aws(global, args.sqs_endpoint_url.as_deref()).await?);
        Ok(Self { client, url })
    }

    pub async fn receive(&self, limit: usize) -> Result<Looked, Failure> {
        let (mut dead_letters, mut seen, mut empty) = (Vec::new(), HashSet::new(), 0);
        while dead_letters.len() < limit && empty < EMPTY_ANSWERS {
            // In a full queue, each answer has as many as it may.
            let left = limit - dead_letters.len();
            let each = (0..left.div_ceil(MOST_RECEIVED).min(AT_ONCE))
                .map(|call| self.receive_some((left - call * MOST_RECEIVED).min(MOST_RECEIVED)));
            for messages in try_join_all(each).await? {
                empty += u32::from(messages.is_empty());
                let dead_letter = messages.into_iter().map(DeadLetter::new);
                dead_letters.extend(dead_letter.filter(|dead_letter| seen.insert(dead_letter.id())));
            }
        }
        let more = dead_letters.len() >= limit;
        // The queue has no order. Those without a time come first.
        dead_letters.sort_by_key(DeadLetter::sent_at);
        let queue = self.url.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Looked { queue, dead_letters, more })
    }

    async fn receive_some(&self, most: usize) -> Result<Vec<Message>, Failure> {
        let received = self
            .client
            .receive_message()
            .queue_url(self.url)
            .max_number_of_messages(most as i32)
            .visibility_timeout(HIDDEN_SECS)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .wait_time_seconds(1)
            .send()
            .await
            .map_err(|error| queue::failed(self.url, &error))?;
        Ok(received.messages.unwrap_or_default())
    }

    /// Makes dead letters visible again. If that fails, they become visible after their time-out.
    pub async fn release(&self, dead_letters: impl Iterator<Item = &DeadLetter>) {
        let each = stream::iter(dead_letters).for_each_concurrent(AT_ONCE, async |dead_letter| {
            let release = self.client.change_message_visibility().queue_url(self.url).visibility_timeout(0);
            let _ = release.set_receipt_handle(dead_letter.message.receipt_handle.clone()).send().await;
        });
        each.await;
    }

    pub async fn delete(&self, dead_letter: &DeadLetter) -> Result<(), Failure> {
        let delete = self.client.delete_message().queue_url(self.url);
        let deleted = delete.set_receipt_handle(dead_letter.message.receipt_handle.clone()).send().await;
        deleted.map(|_| ()).map_err(|error| queue::failed(self.url, &error))
    }
}

impl Looked {
    /// Reads the state of the record of each dead letter that is meant.
    pub async fn look_up_states(&mut self, context: &Context, args: &DeadLetters) {
        for dead_letter in self.dead_letters.iter_mut().filter(|dead_letter| dead_letter.is_chosen(args)) {
            let Some(key) = &dead_letter.record else { continue };
            dead_letter.state = Some(match context.store.load(key).await {
                Ok(Some(record)) => record.state.name(),
                Ok(None) => "absent",
                // The dead letter is still listed; `show` prints the error.
                Err(_) => "unreadable",
            });
        }
    }

    /// Fails if no dead letter has an id that was asked for.
    pub fn refuse_missing(&self, args: &DeadLetters) -> Result<(), Failure> {
        let is_current = |id: &String| self.dead_letters.iter().any(|dead_letter| dead_letter.id() == *id);
        let Some(missing) = args.id.iter().find(|id| !is_current(id)) else { return Ok(()) };
        let looked_at = self.dead_letters.len();
        let hint = match self.more {
            true => "there may be more: raise --limit",
            false => "it is gone, or hidden while another operator looks at it",
        };
        Err(Failure::NotAsExpected(format!(
            "nothing was changed: none of the dead letters that were looked at ({looked_at}) has the id {missing}; {hint}"
        )))
    }

    /// The kinds of the dead letters, if none is of a kind that was asked for.
    fn other_kinds(&self, args: &DeadLetters) -> Option<String> {
        let kinds: BTreeSet<_> =
            self.dead_letters.iter().map(|dead_letter| dead_letter.kind.as_str()).collect();
        if args.kind.is_empty() || args.kind.iter().any(|kind| kinds.contains(kind.as_str())) {
            return None;
        }
        Some(harmless(&kinds.into_iter().collect::<Vec<_>>().join(", ")))
    }

    pub fn chosen(&self, args: &DeadLetters) -> impl Iterator<Item = &DeadLetter> {
        self.dead_letters.iter().filter(|dead_letter| dead_letter.is_chosen(args))
    }

    /// How many of those that are meant there are of each kind.
    pub fn totals(&self, args: &DeadLetters) -> BTreeMap<&str, usize> {
        let mut totals = BTreeMap::new();
        for dead_letter in self.chosen(args) {
            *totals.entry(&*dead_letter.kind).or_default() += 1;
        }
        totals
    }

    /// Warns that there may be more dead letters than were seen.
    pub fn warn(&self) {
        match self.dead_letters.len() {
            _ if !self.more => {}
            1 => eprintln!("looked at one dead letter, there may be more: raise --limit"),
            count => eprintln!("looked at {count} dead letters, there may be more: raise --limit"),
        }
    }
}

/// The dead letters as a table, or a sentence if there is none to show.
pub fn table(context: &Context, looked: &Looked, args: &DeadLetters, drop: bool) -> String {
    let mut dead_letters = looked.chosen(args).peekable();
    if dead_letters.peek().is_none() {
        let kinds = looked.other_kinds(args).map(|kinds| format!(" Kinds: {kinds}.")).unwrap_or_default();
        return match looked.dead_letters.len() {
            // Receiving a dead letter hides it for a while.
            0 => format!(
                "No dead letters are visible in {}: there are none, or they are hidden while another operator looks at them. --queue names another queue.",
                looked.queue
            ),
            1 => format!("The one dead letter that was looked at does not match.{kinds}"),
            count => format!("None of the {count} dead letters that were looked at matches.{kinds}"),
        };
    }
    let mut table = context.screen.table(["message", "kind", "age", "to", "record", "state", "why"]);
    for dead_letter in dead_letters {
        let to = match &dead_letter.destination {
            _ if drop => "(drop)",
            Some((_, queue)) => queue.name(),
            None => "(stays)",
        };
        let key = dead_letter.record.as_ref().map(RecordKey::partition_key).unwrap_or_default();
        table.add_row([
            cell(dead_letter.id()),
            cell(&dead_letter.kind),
            cell(dead_letter.sent_at().map_or_else(String::new, |at| span(context.now().since(at)))),
            cell(to),
            cell(key),
            state_cell(dead_letter.state.unwrap_or_default()),
            cell(dead_letter.why()),
        ]);
    }
    let totals = looked.totals(args).into_iter().map(|(kind, count)| format!("{count} {kind}"));
    format!("{}\n\n{}.", table.trim_fmt(), harmless(&totals.collect::<Vec<_>>().join(", ")))
}
