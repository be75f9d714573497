//! `dead-letters` and `redrive`: list dead letters, move them back to the queues that they came from, or drop them.
//!
//! A message is received, sent on and then deleted. A crash in between duplicates it, which is harmless for all of these
//! messages, and never loses it. A message that cannot be moved is reported, and the others are moved all the same.

use std::collections::{BTreeSet, HashMap, HashSet};

use aws_sdk_sqs::{Client, types::Message};
use lambda_idempotency::{internal::MessageSummary, key::RecordKey, store::Store};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    args::{DeadLetters, Global, ListDeadLetters, Redrive},
    change,
    context::{self, Context},
    failure::Failure,
    output::{cell, harmless, state_cell},
    queue,
};

/// How long received dead letters are hidden from others: as long as an operator may take to answer.
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

/// The dead letters that were received. The queue has an order of its own, so a dead letter that was not received may be any one.
struct Looked {
    dead_letters: Vec<DeadLetter>,
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

/// What is done with one dead letter.
#[derive(Clone, Copy)]
enum Act<'a> {
    Move { key: &'a RecordKey, to: Queue, url: &'a str },
    Drop,
}

/// What became of each dead letter, by its id: `Ok` if it is gone from its queue.
type Outcomes = HashMap<String, Result<(), Failure>>;

/// Shows the dead letters, and leaves them in the queue.
pub async fn list(global: &Global, args: &ListDeadLetters) -> Result<(), Failure> {
    let queue = DeadLetterQueue::open(global, &args.dead_letters).await?;
    let context = Context::open(global).await?;
    let mut looked = queue.receive(args.dead_letters.limit).await?;
    queue.release(looked.dead_letters.iter()).await;
    looked.refuse_missing(&args.dead_letters)?;
    looked.look_up_states(&context).await;
    if context.screen.is_json() {
        let dead_letters: Vec<_> =
            looked.chosen(&args.dead_letters).map(|dead_letter| dead_letter.json(true)).collect();
        let looked = json!({ "dead_letters": dead_letters, "looked_at": looked.dead_letters.len(), "more": looked.more });
        return context.screen.print_json(&looked, false);
    }
    context.screen.print(&table(&context, &looked, &args.dead_letters, false))?;
    looked.warn();
    Ok(())
}

pub async fn run(global: &Global, args: &Redrive) -> Result<(), Failure> {
    change::check(&args.change)?;
    if args.drop && !args.dead_letters.pick_some() {
        return Err(Failure::Usage("--drop needs --id, --kind or --record: which dead letters?".into()));
    }
    let queue = DeadLetterQueue::open(global, &args.dead_letters).await?;
    let context = Context::open(global).await?;
    let mut looked = queue.receive(args.dead_letters.limit).await?;
    looked.look_up_states(&context).await;
    let outcomes = redrive(&context, &queue, args, &looked).await;
    let gone =
        |dead_letter: &DeadLetter| outcomes.as_ref().is_ok_and(|outcomes| is_gone(outcomes, dead_letter));
    // Dead letters that stay become visible now, not only when their time-out is over.
    queue.release(looked.dead_letters.iter().filter(|dead_letter| !gone(dead_letter))).await;
    let outcomes = outcomes?;
    print(&context, args, &looked, &outcomes)?;
    let failed: Vec<_> = outcomes.values().filter_map(|outcome| outcome.as_ref().err()).collect();
    match failed[..] {
        [] => Ok(()),
        [first, ..] => Err(Failure::Error(format!("{} not moved or dropped: {first}", failed.len()))),
    }
}

/// Moves or drops the dead letters. If this fails, nothing was moved or dropped.
async fn redrive(
    context: &Context,
    queue: &DeadLetterQueue<'_>,
    args: &Redrive,
    looked: &Looked,
) -> Result<Outcomes, Failure> {
    looked.refuse_missing(&args.dead_letters)?;
    let listed = table(context, looked, &args.dead_letters, args.drop);
    if !context.screen.is_json() {
        context.screen.print(&listed)?;
        looked.warn();
    } else if !args.change.yes {
        // Standard output is for a program, but the operator must see the dead letters before answering.
        eprintln!("{listed}");
        looked.warn();
    }
    let mut acts = Vec::new();
    for dead_letter in looked.chosen(&args.dead_letters) {
        match &dead_letter.way {
            _ if args.drop => acts.push((dead_letter, Act::Drop)),
            Some((key, to)) => {
                acts.push((dead_letter, Act::Move { key, to: *to, url: url(args, queue, *to)? }))
            }
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
    for (dead_letter, act) in acts {
        let outcome = perform(context, queue, args, dead_letter, act, &who).await;
        let named = |failure| Failure::Error(format!("message {}: {failure}", dead_letter.id()));
        outcomes.insert(dead_letter.id(), outcome.map_err(named));
    }
    Ok(outcomes)
}

async fn perform(
    context: &Context,
    queue: &DeadLetterQueue<'_>,
    args: &Redrive,
    dead_letter: &DeadLetter,
    act: Act<'_>,
    who: &str,
) -> Result<(), Failure> {
    let reason = &args.change.reason;
    // The audit line first: no message is moved or dropped without one.
    match (act, &dead_letter.record) {
        (Act::Move { key, to, url }, _) => {
            tracing::debug!(key = %key.hash(), kind = dead_letter.kind, "moves a message");
            let what = format!("redrive-{} to {}", dead_letter.kind, to.name());
            context.operator.note(key, &what, who, reason).await?;
            queue::send(&queue.client, url, dead_letter.body()).await?;
        }
        (Act::Drop, Some(key)) => {
            tracing::debug!(key = %key.hash(), kind = dead_letter.kind, "drops a message");
            context.operator.note(key, &format!("drop-{}", dead_letter.kind), who, reason).await?;
        }
        // There is no record to keep an audit line: only the printed body remains.
        (Act::Drop, None) => {}
    }
    queue.delete(dead_letter).await
}

fn is_gone(outcomes: &Outcomes, dead_letter: &DeadLetter) -> bool {
    outcomes.get(&dead_letter.id()).is_some_and(Result::is_ok)
}

fn print(context: &Context, args: &Redrive, looked: &Looked, outcomes: &Outcomes) -> Result<(), Failure> {
    let (gone, left): (Vec<_>, Vec<_>) =
        looked.dead_letters.iter().partition(|dead_letter| is_gone(outcomes, dead_letter));
    let why = |dead_letter: &DeadLetter| Some(outcomes.get(&dead_letter.id())?.as_ref().err()?.to_string());
    if context.screen.is_json() {
        let left = left.iter().map(|dead_letter| {
            let mut json = dead_letter.json(false);
            json["why"] = json!(why(dead_letter));
            json
        });
        let left: Vec<_> = left.collect();
        let gone: Vec<_> = gone.iter().map(|dead_letter| dead_letter.json(args.drop)).collect();
        let done = if args.drop { "dropped" } else { "moved" };
        let said =
            json!({ done: gone, "left": left, "looked_at": looked.dead_letters.len(), "more": looked.more });
        return context.screen.print_json(&said, false);
    }
    for dead_letter in gone.iter().filter(|dead_letter| args.drop && dead_letter.record.is_none()) {
        let (id, body) = (dead_letter.id(), dead_letter.body());
        context.screen.print(&harmless(&format!("Dropped without a record: {id} {body}")))?;
    }
    for why in left.iter().filter_map(|dead_letter| why(dead_letter)) {
        context.screen.print(&harmless(&format!("Stays: {why}")))?;
    }
    let done = if args.drop { "dropped" } else { "moved" };
    context.screen.print(&format!("{} {done}, {} left.", gone.len(), left.len()))
}

impl Looked {
    /// Looks up what each dead letter's record is now.
    async fn look_up_states(&mut self, context: &Context) {
        for dead_letter in &mut self.dead_letters {
            let Some(key) = &dead_letter.record else { continue };
            dead_letter.state = Some(match context.store.load(key).await {
                Ok(Some(record)) => record.state.name(),
                Ok(None) => "absent",
                // The dead letter is listed all the same; `show` says why.
                Err(_) => "unreadable",
            });
        }
    }

    /// Fails if no dead letter has an id that was asked for.
    fn refuse_missing(&self, args: &DeadLetters) -> Result<(), Failure> {
        let is_current = |id: &String| self.dead_letters.iter().any(|dead_letter| dead_letter.id() == *id);
        let Some(missing) = args.id.iter().find(|id| !is_current(id)) else { return Ok(()) };
        let looked_at = self.dead_letters.len();
        let hint = match self.more {
            true => "there may be more: raise --limit",
            false => "it is gone, or somebody is looking at it",
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

    fn chosen(&self, args: &DeadLetters) -> impl Iterator<Item = &DeadLetter> {
        self.dead_letters.iter().filter(|dead_letter| dead_letter.is_chosen(args))
    }

    /// Warns that there may be more dead letters than were seen.
    fn warn(&self) {
        match self.dead_letters.len() {
            _ if !self.more => {}
            1 => eprintln!("looked at one dead letter, there may be more: raise --limit"),
            count => eprintln!("looked at {count} dead letters, there may be more: raise --limit"),
        }
    }
}

impl DeadLetters {
    /// Whether the arguments pick dead letters, or mean all of them.
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
        let MessageSummary { kind, record, queue, .. } = MessageSummary::read(body);
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
        let (mut dead_letters, mut seen, mut empty) = (Vec::new(), HashSet::new(), 0);
        while dead_letters.len() < limit && empty < EMPTY_ANSWERS {
            let most = (limit - dead_letters.len()).min(10);
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
            let dead_letter =
                messages.into_iter().map(DeadLetter::new).filter(|dead_letter| seen.insert(dead_letter.id()));
            dead_letters.extend(dead_letter);
        }
        let more = dead_letters.len() >= limit;
        Ok(Looked { dead_letters, more })
    }

    /// Makes dead letters visible again. If that fails, they are visible when their time-out is over.
    async fn release(&self, dead_letters: impl Iterator<Item = &DeadLetter>) {
        for dead_letter in dead_letters {
            let release = self.client.change_message_visibility().queue_url(self.url).visibility_timeout(0);
            let _ = release.set_receipt_handle(dead_letter.message.receipt_handle.clone()).send().await;
        }
    }

    async fn delete(&self, dead_letter: &DeadLetter) -> Result<(), Failure> {
        let delete = self.client.delete_message().queue_url(self.url);
        let deleted = delete.set_receipt_handle(dead_letter.message.receipt_handle.clone()).send().await;
        deleted.map(|_| ()).map_err(|error| queue::failed(self.url, &error))
    }
}

fn table(context: &Context, looked: &Looked, args: &DeadLetters, drop: bool) -> String {
    let mut dead_letters = looked.chosen(args).peekable();
    if dead_letters.peek().is_none() {
        let kinds = looked.other_kinds(args).map(|kinds| format!(" Kinds: {kinds}.")).unwrap_or_default();
        return match looked.dead_letters.len() {
            // Receiving a dead letter hides it for a while.
            0 => "No dead letters are visible: there are none, or somebody is looking at them.".to_owned(),
            1 => format!("The one dead letter that was looked at does not match.{kinds}"),
            count => format!("None of the {count} dead letters that were looked at matches.{kinds}"),
        };
    }
    let mut table = context.screen.table(["message", "kind", "to", "record", "state", "reason"]);
    for dead_letter in dead_letters {
        let to = match &dead_letter.way {
            _ if drop => "(drop)",
            Some((_, queue)) => queue.name(),
            None => "(stays)",
        };
        let key = dead_letter.record.as_ref().map(RecordKey::partition_key).unwrap_or_default();
        table.add_row([
            cell(dead_letter.id()),
            cell(&dead_letter.kind),
            cell(to),
            cell(key),
            state_cell(dead_letter.state.unwrap_or_default()),
            cell(dead_letter.reason.as_deref().unwrap_or_default()),
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
