//! `redrive`: dead letters go back to the queues that they came from.
//!
//! A message is received, sent on and then deleted: what dies in between leaves it twice and never lost, and all of these
//! messages are harmless twice.

use std::{collections::HashSet, error::Error, time::Duration};

use aws_config::{SdkConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{Client, config::Builder, types::Message};
use comfy_table::Cell;
use lambda_idempotency::{key::RecordKey, operator::Letter};
use serde_json::{Value, json};

use crate::{
    args::{Global, Redrive},
    change,
    context::{self, Context},
    failure::Failure,
    output::harmless,
};

/// How long nobody else sees what was received: as long as a person may take to answer.
const HIDDEN_SECS: i32 = 300;

/// A queue answers from a part of its servers, so that one empty answer does not mean that it is empty.
const EMPTY_ANSWERS: u32 = 2;

/// A dead letter.
struct DeadLetter {
    message: Message,
    kind: String,
    /// The record that it is about, if it can be read.
    record: Option<RecordKey>,
    /// Where it goes, and about which record; `None` if it stays.
    way: Option<(RecordKey, Queue)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Queue {
    Checks,
    Reconcile,
}

impl Queue {
    const fn name(self) -> &'static str {
        match self {
            Self::Checks => "checks",
            Self::Reconcile => "reconcile",
        }
    }
}

pub async fn run(global: &Global, args: &Redrive) -> Result<(), Failure> {
    change::check(&args.change)?;
    let context = Context::open(global).await?;
    let client = client(&context::aws(global, args.sqs_endpoint_url.as_deref()).await?);
    let letters = receive(&client, args).await?;
    let mut moved = HashSet::new();
    let outcome = redrive(&context, &client, args, &letters, &mut moved).await;
    // What stays is to be seen again now, and not when its time is over.
    for letter in letters.iter().filter(|letter| !moved.contains(&letter.id())) {
        let release = client.change_message_visibility().queue_url(&args.queue).visibility_timeout(0);
        let _ = release.set_receipt_handle(letter.message.receipt_handle.clone()).send().await;
    }
    if context.screen.is_json() {
        let (moved, left): (Vec<_>, Vec<_>) = letters.iter().partition(|letter| moved.contains(&letter.id()));
        let json = |letters: Vec<&DeadLetter>| letters.into_iter().map(DeadLetter::json).collect::<Vec<_>>();
        context.screen.print_json(&json!({ "moved": json(moved), "left": json(left) }), false)?;
    } else if outcome.is_ok() {
        let left = letters.len() - moved.len();
        context.screen.print(&format!("{} moved, {left} left.", moved.len()))?;
    }
    outcome
}

async fn redrive(
    context: &Context,
    client: &Client,
    args: &Redrive,
    letters: &[DeadLetter],
    moved: &mut HashSet<String>,
) -> Result<(), Failure> {
    let listed = table(context, letters);
    if !context.screen.is_json() {
        context.screen.print(&listed)?;
    } else if !args.change.yes {
        // As for a record: who is asked must see what it is about.
        eprintln!("{listed}");
    }
    let mut moves = Vec::new();
    for letter in letters {
        if let Some((key, queue)) = &letter.way {
            moves.push((letter, key, *queue, url(args, *queue)?));
        }
    }
    if moves.is_empty() {
        return Ok(());
    }
    let count = match moves.len() {
        1 => "one message back to its queue".to_owned(),
        count => format!("{count} messages back to their queues"),
    };
    change::confirm(&args.change, &format!("Move {count}?"))?;
    for (letter, key, queue, url) in moves {
        tracing::debug!(key = %key.hash(), kind = letter.kind, "moves a message");
        let what = format!("redrive-{} to {}", letter.kind, queue.name());
        // The line first: no message is moved without it.
        context.operator.note(key, &what, &change::who(&args.change)?, &args.change.reason).await?;
        let body = letter.message.body().unwrap_or_default();
        let sent = client.send_message().queue_url(url).message_body(body).send().await;
        sent.map_err(|error| at_queue(url, &error))?;
        let delete = client.delete_message().queue_url(&args.queue);
        let deleted = delete.set_receipt_handle(letter.message.receipt_handle.clone()).send().await;
        deleted.map_err(|error| at_queue(&args.queue, &error))?;
        moved.insert(letter.id());
    }
    Ok(())
}

impl DeadLetter {
    fn new(message: Message) -> Self {
        let Letter { kind, record, queue, .. } = Letter::read(message.body().unwrap_or_default());
        let queue = match queue {
            Some("checks") => Some(Queue::Checks),
            Some("reconcile") => Some(Queue::Reconcile),
            _ => None,
        };
        let way = record.clone().zip(queue);
        Self { message, kind: kind.unwrap_or_else(|| "(none)".to_owned()), record, way }
    }

    fn id(&self) -> String {
        self.message.message_id().unwrap_or_default().to_owned()
    }

    fn json(&self) -> Value {
        let key = self.record.as_ref().map(RecordKey::partition_key);
        let to = self.way.as_ref().map(|(_, queue)| queue.name());
        json!({ "message_id": self.id(), "kind": self.kind, "record": key, "to": to })
    }
}

/// With time-outs: the SDK has none of its own.
fn client(config: &SdkConfig) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(3))
        .operation_attempt_timeout(Duration::from_secs(10))
        .operation_timeout(Duration::from_secs(30));
    Client::from_conf(Builder::from(config).timeout_config(timeouts.build()).build())
}

async fn receive(client: &Client, args: &Redrive) -> Result<Vec<DeadLetter>, Failure> {
    let (mut letters, mut seen, mut empty) = (Vec::new(), HashSet::new(), 0);
    while letters.len() < args.limit && empty < EMPTY_ANSWERS {
        let most = (args.limit - letters.len()).min(10);
        let received = client
            .receive_message()
            .queue_url(&args.queue)
            .max_number_of_messages(most as i32)
            .visibility_timeout(HIDDEN_SECS)
            .wait_time_seconds(1)
            .send()
            .await
            .map_err(|error| at_queue(&args.queue, &error))?;
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            empty += 1;
        }
        let letter = messages.into_iter().map(DeadLetter::new).filter(|letter| seen.insert(letter.id()));
        letters.extend(letter);
    }
    Ok(letters)
}

fn table(context: &Context, letters: &[DeadLetter]) -> String {
    if letters.is_empty() {
        return "There are no dead letters.".to_owned();
    }
    let mut table = context.screen.table(["message", "kind", "to", "record"]);
    for letter in letters {
        let to = match &letter.way {
            Some((_, queue)) => queue.name(),
            None => "(stays)",
        };
        let key = letter.record.as_ref().map(RecordKey::partition_key).unwrap_or_default();
        let kind = harmless(&letter.kind);
        table.add_row([Cell::new(letter.id()), Cell::new(kind), Cell::new(to), Cell::new(key)]);
    }
    table.trim_fmt()
}

/// Which of three queues it is about.
fn at_queue(url: &str, error: &(dyn Error + 'static)) -> Failure {
    Failure::Error(format!("queue {url}: {}", Failure::from_error(error)))
}

fn url(args: &Redrive, queue: Queue) -> Result<&str, Failure> {
    let (url, option) = match queue {
        Queue::Checks => (&args.to_checks, "--to-checks"),
        Queue::Reconcile => (&args.to_reconcile, "--to-reconcile"),
    };
    match url.as_deref() {
        Some(url) if url == args.queue => {
            Err(Failure::Usage(format!("{option} is the queue of dead letters itself: nothing was moved")))
        }
        Some(url) => Ok(url),
        None => {
            let name = queue.name();
            Err(Failure::Usage(format!("there are messages for the queue `{name}`: say {option} too")))
        }
    }
}
