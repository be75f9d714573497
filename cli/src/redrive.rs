//! `letters` and `redrive`: dead letters are listed, go back to the queues that they came from, or are dropped.
//!
//! A message is received, sent on and then deleted: what dies in between leaves it twice and never lost, and all of these
//! messages are harmless twice. What cannot be moved is reported, and the others are moved all the same.

use std::collections::{HashMap, HashSet};

use aws_sdk_sqs::{Client, types::Message};
use lambda_idempotency::{key::RecordKey, operator::Letter};
use serde_json::{Value, json};

use crate::{
    args::{DeadLetters, Global, Letters, Redrive},
    change,
    context::{self, Context},
    failure::Failure,
    output::{cell, harmless},
    queue,
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

/// What was received. The queue answers in an order of its own, so that any letter may be among the others.
struct Looked {
    letters: Vec<DeadLetter>,
    /// Whether the queue may hold others.
    more: bool,
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

/// What is done with one letter.
#[derive(Clone, Copy)]
enum Act<'a> {
    Move { key: &'a RecordKey, to: Queue, url: &'a str },
    Drop,
}

/// What became of letters, by their id: `Ok` if one is gone from its queue.
type Outcomes = HashMap<String, Result<(), Failure>>;

/// Shows the letters, and leaves them.
pub async fn list(global: &Global, args: &Letters) -> Result<(), Failure> {
    let context = Context::open(global).await?;
    let client = client(global, &args.letters).await?;
    let looked = receive(&client, &args.letters).await?;
    release(&client, &args.letters, looked.letters.iter()).await;
    if context.screen.is_json() {
        let letters: Vec<_> = looked.chosen(&args.letters).map(|letter| letter.json(true)).collect();
        let looked = json!({ "letters": letters, "looked_at": looked.letters.len(), "more": looked.more });
        return context.screen.print_json(&looked, false);
    }
    context.screen.print(&table(&context, &looked, &args.letters, false))?;
    looked.warn();
    Ok(())
}

pub async fn run(global: &Global, args: &Redrive) -> Result<(), Failure> {
    change::check(&args.change)?;
    let context = Context::open(global).await?;
    let client = client(global, &args.letters).await?;
    let looked = receive(&client, &args.letters).await?;
    let outcomes = redrive(&context, &client, args, &looked).await;
    let gone = |letter: &DeadLetter| outcomes.as_ref().is_ok_and(|outcomes| is_gone(outcomes, letter));
    // What stays is to be seen again now, and not when its time is over.
    release(&client, &args.letters, looked.letters.iter().filter(|letter| !gone(letter))).await;
    let outcomes = outcomes?;
    print(&context, args, &looked, &outcomes)?;
    let failed: Vec<_> = outcomes.values().filter_map(|outcome| outcome.as_ref().err()).collect();
    match failed[..] {
        [] => Ok(()),
        [first, ..] => Err(Failure::Error(format!("{} stayed that should not: {first}", failed.len()))),
    }
}

/// Fails before anything was moved or dropped.
async fn redrive(
    context: &Context,
    client: &Client,
    args: &Redrive,
    looked: &Looked,
) -> Result<Outcomes, Failure> {
    let listed = table(context, looked, &args.letters, args.drop);
    if !context.screen.is_json() {
        context.screen.print(&listed)?;
        looked.warn();
    } else if !args.change.yes {
        // As for a record: who is asked must see what it is about.
        eprintln!("{listed}");
        looked.warn();
    }
    let mut acts = Vec::new();
    for letter in looked.chosen(&args.letters) {
        match &letter.way {
            _ if args.drop => acts.push((letter, Act::Drop)),
            Some((key, to)) => acts.push((letter, Act::Move { key, to: *to, url: url(args, *to)? })),
            None => {}
        }
    }
    if acts.is_empty() {
        return Ok(Outcomes::new());
    }
    let question = match (args.drop, acts.len()) {
        (true, 1) => "Drop one message for good?".to_owned(),
        (true, count) => format!("Drop {count} messages for good?"),
        (false, 1) => "Move one message back to its queue?".to_owned(),
        (false, count) => format!("Move {count} messages back to their queues?"),
    };
    change::confirm(&args.change, &question)?;
    let who = change::who(&args.change)?;
    let mut outcomes = Outcomes::new();
    for (letter, act) in acts {
        let outcome = perform(context, client, args, letter, act, &who).await;
        let named = |failure| Failure::Error(format!("message {}: {failure}", letter.id()));
        outcomes.insert(letter.id(), outcome.map_err(named));
    }
    Ok(outcomes)
}

async fn perform(
    context: &Context,
    client: &Client,
    args: &Redrive,
    letter: &DeadLetter,
    act: Act<'_>,
    who: &str,
) -> Result<(), Failure> {
    let reason = &args.change.reason;
    // The line first: no message is moved or dropped without it.
    match (act, &letter.record) {
        (Act::Move { key, to, url }, _) => {
            tracing::debug!(key = %key.hash(), kind = letter.kind, "moves a message");
            let what = format!("redrive-{} to {}", letter.kind, to.name());
            context.operator.note(key, &what, who, reason).await?;
            queue::send(client, url, letter.body()).await?;
        }
        (Act::Drop, Some(key)) => {
            tracing::debug!(key = %key.hash(), kind = letter.kind, "drops a message");
            context.operator.note(key, &format!("drop-{}", letter.kind), who, reason).await?;
        }
        // There is no record to keep a line: what is printed is all that is left.
        (Act::Drop, None) => {}
    }
    let delete = client.delete_message().queue_url(&args.letters.queue);
    let deleted = delete.set_receipt_handle(letter.message.receipt_handle.clone()).send().await;
    deleted.map(|_| ()).map_err(|error| queue::failed(&args.letters.queue, &error))
}

fn is_gone(outcomes: &Outcomes, letter: &DeadLetter) -> bool {
    outcomes.get(&letter.id()).is_some_and(Result::is_ok)
}

fn print(context: &Context, args: &Redrive, looked: &Looked, outcomes: &Outcomes) -> Result<(), Failure> {
    let (gone, left): (Vec<_>, Vec<_>) = looked.letters.iter().partition(|letter| is_gone(outcomes, letter));
    let why = |letter: &DeadLetter| Some(outcomes.get(&letter.id())?.as_ref().err()?.to_string());
    if context.screen.is_json() {
        let left = left.iter().map(|letter| {
            let mut json = letter.json(false);
            json["why"] = json!(why(letter));
            json
        });
        let left: Vec<_> = left.collect();
        let gone: Vec<_> = gone.iter().map(|letter| letter.json(args.drop)).collect();
        let done = if args.drop { "dropped" } else { "moved" };
        let said =
            json!({ done: gone, "left": left, "looked_at": looked.letters.len(), "more": looked.more });
        return context.screen.print_json(&said, false);
    }
    for letter in gone.iter().filter(|letter| args.drop && letter.record.is_none()) {
        let (id, body) = (letter.id(), letter.body());
        context.screen.print(&harmless(&format!("Dropped without a record: {id} {body}")))?;
    }
    for why in left.iter().filter_map(|letter| why(letter)) {
        context.screen.print(&harmless(&format!("Stays: {why}")))?;
    }
    let done = if args.drop { "dropped" } else { "moved" };
    context.screen.print(&format!("{} {done}, {} left.", gone.len(), left.len()))
}

impl Looked {
    fn chosen(&self, args: &DeadLetters) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter().filter(|letter| letter.is_chosen(args))
    }

    /// Nobody is to take what was seen for all that there is.
    fn warn(&self) {
        match self.letters.len() {
            _ if !self.more => {}
            1 => eprintln!("looked at one letter, there may be more: raise --limit"),
            count => eprintln!("looked at {count} letters, there may be more: raise --limit"),
        }
    }
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

    fn body(&self) -> &str {
        self.message.body().unwrap_or_default()
    }

    /// Whether it has one of the ids, one of the kinds, and the record that were asked for; what was not asked for counts
    /// for nothing.
    fn is_chosen(&self, args: &DeadLetters) -> bool {
        (args.id.is_empty() || args.id.contains(&self.id()))
            && (args.kind.is_empty() || args.kind.contains(&self.kind))
            && args.record.as_ref().is_none_or(|record| self.record.as_ref() == Some(record))
    }

    fn json(&self, whole: bool) -> Value {
        let key = self.record.as_ref().map(RecordKey::partition_key);
        let to = self.way.as_ref().map(|(_, queue)| queue.name());
        let mut json = json!({ "message_id": self.id(), "kind": self.kind, "record": key, "to": to });
        if whole {
            json["body"] = json!(self.body());
        }
        json
    }
}

async fn client(global: &Global, args: &DeadLetters) -> Result<Client, Failure> {
    Ok(queue::client(&context::aws(global, args.sqs_endpoint_url.as_deref()).await?))
}

async fn receive(client: &Client, args: &DeadLetters) -> Result<Looked, Failure> {
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
            .map_err(|error| queue::failed(&args.queue, &error))?;
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            empty += 1;
        }
        let letter = messages.into_iter().map(DeadLetter::new).filter(|letter| seen.insert(letter.id()));
        letters.extend(letter);
    }
    let more = letters.len() >= args.limit;
    Ok(Looked { letters, more })
}

/// Lets others see them again. If it fails, they are seen when their time is over.
async fn release(client: &Client, args: &DeadLetters, letters: impl Iterator<Item = &DeadLetter>) {
    for letter in letters {
        let release = client.change_message_visibility().queue_url(&args.queue).visibility_timeout(0);
        let _ = release.set_receipt_handle(letter.message.receipt_handle.clone()).send().await;
    }
}

fn table(context: &Context, looked: &Looked, args: &DeadLetters, drop: bool) -> String {
    let mut letters = looked.chosen(args).peekable();
    if letters.peek().is_none() {
        return match looked.letters.len() {
            // Whoever has received one, hides it for a while.
            0 => "No dead letters can be seen: there are none, or somebody looks at them now.".to_owned(),
            1 => "The one letter that was looked at is not meant.".to_owned(),
            count => format!("None of the {count} letters that were looked at is meant."),
        };
    }
    let mut table = context.screen.table(["message", "kind", "to", "record"]);
    for letter in letters {
        let to = match &letter.way {
            _ if drop => "(dropped)",
            Some((_, queue)) => queue.name(),
            None => "(stays)",
        };
        let key = letter.record.as_ref().map(RecordKey::partition_key).unwrap_or_default();
        table.add_row([cell(letter.id()), cell(&letter.kind), cell(to), cell(key)]);
    }
    table.trim_fmt()
}

fn url(args: &Redrive, queue: Queue) -> Result<&str, Failure> {
    let (url, option) = match queue {
        Queue::Checks => (&args.to_checks, "--to-checks"),
        Queue::Reconcile => (&args.to_reconcile, "--to-reconcile"),
    };
    match url.as_deref() {
        Some(url) if url == args.letters.queue => {
            Err(Failure::Usage(format!("{option} is the queue of dead letters itself: nothing was moved")))
        }
        Some(url) => Ok(url),
        None => {
            let name = queue.name();
            Err(Failure::Usage(format!("there are messages for the queue `{name}`: say {option} too")))
        }
    }
}
