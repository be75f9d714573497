//! `letters` and `redrive`: list dead letters, move them back to the queues that they came from, or drop them.
//!
//! A message is received, sent on and then deleted. A crash in between duplicates it, which is harmless for all of these
//! messages, and never loses it. A message that cannot be moved is reported, and the others are moved all the same.

use std::collections::{BTreeSet, HashMap, HashSet};

use aws_sdk_sqs::{Client, types::Message};
use lambda_idempotency::{key::RecordKey, operator::Letter, store::Store};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    args::{DeadLetters, Global, Letters, Redrive},
    change,
    context::{self, Context},
    failure::Failure,
    output::{cell, harmless, state_cell},
    queue,
};

/// How long received letters are hidden from others: as long as a person may take to answer.
const HIDDEN_SECS: i32 = 300;

/// Empty answers after which a queue counts as empty. It answers from a part of its servers, so one empty answer is not enough.
const EMPTY_ANSWERS: u32 = 2;

/// The queue of dead letters.
struct DeadLetterQueue<'a> {
    client: Client,
    url: &'a str,
}

/// A dead letter.
struct DeadLetter {
    message: Message,
    kind: String,
    /// Why it was sent, if it says.
    reason: Option<String>,
    /// Its record, if that can be read.
    record: Option<RecordKey>,
    /// What its record is now, once that was looked up.
    state: Option<&'static str>,
    /// Its record and the queue that it goes to; `None` if it stays.
    way: Option<(RecordKey, Queue)>,
}

/// The letters that were received. The queue has an order of its own, so a letter that was not received may be any one.
struct Looked {
    letters: Vec<DeadLetter>,
    /// Whether the queue may hold more.
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

/// What became of each letter, by its id: `Ok` if it is gone from its queue.
type Outcomes = HashMap<String, Result<(), Failure>>;

/// Shows the letters, and leaves them in the queue.
pub async fn list(global: &Global, args: &Letters) -> Result<(), Failure> {
    let queue = DeadLetterQueue::open(global, &args.letters).await?;
    let context = Context::open(global).await?;
    let mut looked = queue.receive(args.letters.limit).await?;
    queue.release(looked.letters.iter()).await;
    looked.refuse_missing(&args.letters)?;
    looked.look_up_states(&context).await;
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
    if args.drop && !args.letters.pick_some() {
        return Err(Failure::Usage("--drop needs --id, --kind or --record: which letters?".into()));
    }
    let queue = DeadLetterQueue::open(global, &args.letters).await?;
    let context = Context::open(global).await?;
    let mut looked = queue.receive(args.letters.limit).await?;
    looked.look_up_states(&context).await;
    let outcomes = redrive(&context, &queue, args, &looked).await;
    let gone = |letter: &DeadLetter| outcomes.as_ref().is_ok_and(|outcomes| is_gone(outcomes, letter));
    // Letters that stay become visible now, not only when their time-out is over.
    queue.release(looked.letters.iter().filter(|letter| !gone(letter))).await;
    let outcomes = outcomes?;
    print(&context, args, &looked, &outcomes)?;
    let failed: Vec<_> = outcomes.values().filter_map(|outcome| outcome.as_ref().err()).collect();
    match failed[..] {
        [] => Ok(()),
        [first, ..] => Err(Failure::Error(format!("{} not moved or dropped: {first}", failed.len()))),
    }
}

/// Moves or drops the letters. If this fails, nothing was moved or dropped.
async fn redrive(
    context: &Context,
    queue: &DeadLetterQueue<'_>,
    args: &Redrive,
    looked: &Looked,
) -> Result<Outcomes, Failure> {
    looked.refuse_missing(&args.letters)?;
    let listed = table(context, looked, &args.letters, args.drop);
    if !context.screen.is_json() {
        context.screen.print(&listed)?;
        looked.warn();
    } else if !args.change.yes {
        // Standard output is for a program, but the operator must see the letters before answering.
        eprintln!("{listed}");
        looked.warn();
    }
    let mut acts = Vec::new();
    for letter in looked.chosen(&args.letters) {
        match &letter.way {
            _ if args.drop => acts.push((letter, Act::Drop)),
            Some((key, to)) => acts.push((letter, Act::Move { key, to: *to, url: url(args, queue, *to)? })),
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
        let outcome = perform(context, queue, args, letter, act, &who).await;
        let named = |failure| Failure::Error(format!("message {}: {failure}", letter.id()));
        outcomes.insert(letter.id(), outcome.map_err(named));
    }
    Ok(outcomes)
}

async fn perform(
    context: &Context,
    queue: &DeadLetterQueue<'_>,
    args: &Redrive,
    letter: &DeadLetter,
    act: Act<'_>,
    who: &str,
) -> Result<(), Failure> {
    let reason = &args.change.reason;
    // The audit line first: no message is moved or dropped without one.
    match (act, &letter.record) {
        (Act::Move { key, to, url }, _) => {
            tracing::debug!(key = %key.hash(), kind = letter.kind, "moves a message");
            let what = format!("redrive-{} to {}", letter.kind, to.name());
            context.operator.note(key, &what, who, reason).await?;
            queue::send(&queue.client, url, letter.body()).await?;
        }
        (Act::Drop, Some(key)) => {
            tracing::debug!(key = %key.hash(), kind = letter.kind, "drops a message");
            context.operator.note(key, &format!("drop-{}", letter.kind), who, reason).await?;
        }
        // There is no record to keep an audit line: only the printed body remains.
        (Act::Drop, None) => {}
    }
    queue.delete(letter).await
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
    /// Looks up what each letter's record is now.
    async fn look_up_states(&mut self, context: &Context) {
        for letter in &mut self.letters {
            let Some(key) = &letter.record else { continue };
            letter.state = Some(match context.store.load(key).await {
                Ok(Some(record)) => record.state.name(),
                Ok(None) => "absent",
                // The letter is listed all the same; `show` says why.
                Err(_) => "unreadable",
            });
        }
    }

    /// Fails if no letter has an id that was asked for.
    fn refuse_missing(&self, args: &DeadLetters) -> Result<(), Failure> {
        let is_there = |id: &String| self.letters.iter().any(|letter| letter.id() == *id);
        let Some(missing) = args.id.iter().find(|id| !is_there(id)) else { return Ok(()) };
        let looked_at = self.letters.len();
        let hint = match self.more {
            true => "there may be more: raise --limit",
            false => "it is gone, or somebody is looking at it",
        };
        Err(Failure::NotAsExpected(format!(
            "nothing was changed: none of the letters that were looked at ({looked_at}) has the id {missing}; {hint}"
        )))
    }

    /// The kinds of the letters, if none is of a kind that was asked for.
    fn other_kinds(&self, args: &DeadLetters) -> Option<String> {
        let kinds: BTreeSet<_> = self.letters.iter().map(|letter| letter.kind.as_str()).collect();
        if args.kind.is_empty() || args.kind.iter().any(|kind| kinds.contains(kind.as_str())) {
            return None;
        }
        Some(harmless(&kinds.into_iter().collect::<Vec<_>>().join(", ")))
    }

    fn chosen(&self, args: &DeadLetters) -> impl Iterator<Item = &DeadLetter> {
        self.letters.iter().filter(|letter| letter.is_chosen(args))
    }

    /// Warns that there may be more letters than were seen.
    fn warn(&self) {
        match self.letters.len() {
            _ if !self.more => {}
            1 => eprintln!("looked at one letter, there may be more: raise --limit"),
            count => eprintln!("looked at {count} letters, there may be more: raise --limit"),
        }
    }
}

impl DeadLetters {
    /// Whether the arguments pick letters, or mean all of them.
    fn pick_some(&self) -> bool {
        !self.id.is_empty() || !self.kind.is_empty() || self.record.is_some()
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
        let Letter { kind, record, queue, .. } = Letter::read(body);
        let queue = match queue {
            Some("checks") => Some(Queue::Checks),
            Some("reconcile") => Some(Queue::Reconcile),
            _ => None,
        };
        let way = record.clone().zip(queue);
        let kind = kind.unwrap_or_else(|| "(none)".to_owned());
        Self { message, kind, reason, record, state: None, way }
    }

    fn id(&self) -> String {
        self.message.message_id().unwrap_or_default().to_owned()
    }

    fn body(&self) -> &str {
        self.message.body().unwrap_or_default()
    }

    /// Whether it matches the ids, the kinds and the record that were asked for. A criterion that was not given matches all.
    fn is_chosen(&self, args: &DeadLetters) -> bool {
        (args.id.is_empty() || args.id.contains(&self.id()))
            && (args.kind.is_empty() || args.kind.contains(&self.kind))
            && args.record.as_ref().is_none_or(|record| self.record.as_ref() == Some(record))
    }

    fn json(&self, whole: bool) -> Value {
        let key = self.record.as_ref().map(RecordKey::partition_key);
        let to = self.way.as_ref().map(|(_, queue)| queue.name());
        let mut json = json!({
            "message_id": self.id(),
            "kind": self.kind,
            "reason": self.reason,
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
    async fn open(global: &Global, args: &'a DeadLetters) -> Result<Self, Failure> {
        let url = queue::named(args.queue.as_deref(), "DEAD_LETTERS_QUEUE_URL")?;
        let client = queue::client(&context::aws(global, args.sqs_endpoint_url.as_deref()).await?);
        Ok(Self { client, url })
    }

    async fn receive(&self, limit: usize) -> Result<Looked, Failure> {
        let (mut letters, mut seen, mut empty) = (Vec::new(), HashSet::new(), 0);
        while letters.len() < limit && empty < EMPTY_ANSWERS {
            let most = (limit - letters.len()).min(10);
            let received = self
                .client
                .receive_message()
                .queue_url(self.url)
                .max_number_of_messages(most as i32)
                .visibility_timeout(HIDDEN_SECS)
                .wait_time_seconds(1)
                .send()
                .await
                .map_err(|error| queue::failed(self.url, &error))?;
            let messages = received.messages.unwrap_or_default();
            if messages.is_empty() {
                empty += 1;
            }
            let letter = messages.into_iter().map(DeadLetter::new).filter(|letter| seen.insert(letter.id()));
            letters.extend(letter);
        }
        let more = letters.len() >= limit;
        Ok(Looked { letters, more })
    }

    /// Makes letters visible again. If that fails, they are visible when their time-out is over.
    async fn release(&self, letters: impl Iterator<Item = &DeadLetter>) {
        for letter in letters {
            let release = self.client.change_message_visibility().queue_url(self.url).visibility_timeout(0);
            let _ = release.set_receipt_handle(letter.message.receipt_handle.clone()).send().await;
        }
    }

    async fn delete(&self, letter: &DeadLetter) -> Result<(), Failure> {
        let delete = self.client.delete_message().queue_url(self.url);
        let deleted = delete.set_receipt_handle(letter.message.receipt_handle.clone()).send().await;
        deleted.map(|_| ()).map_err(|error| queue::failed(self.url, &error))
    }
}

fn table(context: &Context, looked: &Looked, args: &DeadLetters, drop: bool) -> String {
    let mut letters = looked.chosen(args).peekable();
    if letters.peek().is_none() {
        let kinds = looked.other_kinds(args).map(|kinds| format!(" Kinds: {kinds}.")).unwrap_or_default();
        return match looked.letters.len() {
            // Receiving a letter hides it for a while.
            0 => "No dead letters are visible: there are none, or somebody is looking at them.".to_owned(),
            1 => format!("The one letter that was looked at does not match.{kinds}"),
            count => format!("None of the {count} letters that were looked at matches.{kinds}"),
        };
    }
    let mut table = context.screen.table(["message", "kind", "to", "record", "state", "reason"]);
    for letter in letters {
        let to = match &letter.way {
            _ if drop => "(drop)",
            Some((_, queue)) => queue.name(),
            None => "(stays)",
        };
        let key = letter.record.as_ref().map(RecordKey::partition_key).unwrap_or_default();
        table.add_row([
            cell(letter.id()),
            cell(&letter.kind),
            cell(to),
            cell(key),
            state_cell(letter.state.unwrap_or_default()),
            cell(letter.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table.trim_fmt()
}

fn url<'a>(args: &'a Redrive, from: &DeadLetterQueue<'_>, to: Queue) -> Result<&'a str, Failure> {
    let (url, option) = match to {
        Queue::Checks => (&args.to_checks, "--to-checks"),
        Queue::Reconcile => (&args.to_reconcile, "--to-reconcile"),
    };
    match url.as_deref() {
        Some(url) if url == from.url => {
            Err(Failure::Usage(format!("{option} is the queue of dead letters itself: nothing was moved")))
        }
        Some(url) => Ok(url),
        None => {
            let name = to.name();
            Err(Failure::Usage(format!("there are messages for the queue `{name}`: say {option} too")))
        }
    }
}
