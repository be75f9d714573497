//! `dead-letters` and `redrive`: list dead letters, move them back to the queues that they came from, or drop them.
//!
//! A message is received, sent on and then deleted. A crash in between duplicates it, which is harmless for all of these
//! messages, and never loses it. If a message cannot be moved, that is reported, and the others are still moved.

use std::collections::HashMap;

use crate::terminal::harmless;
use lambda_idempotency::key::RecordKey;
use serde_json::json;

use crate::{
    args::{DeadLetters, Global, ListDeadLetters, Redrive},
    change,
    context::Context,
    dead_letters::{DeadLetter, DeadLetterQueue, Looked, Queue, table},
    failure::Failure,
    queue,
};

/// What is done with one dead letter.
#[derive(Clone, Copy)]
enum Act<'a> {
    Move { key: &'a RecordKey, to: Queue, url: &'a str },
    Drop,
}

/// The outcome of each dead letter, by its id: `Ok` if it is no longer in its queue.
type Outcomes = HashMap<String, Result<(), Failure>>;

/// Shows the dead letters, and leaves them in the queue.
pub async fn list(global: &Global, args: &ListDeadLetters) -> Result<(), Failure> {
    let queue = DeadLetterQueue::open(global, &args.dead_letters).await?;
    let context = Context::open(global).await?;
    let mut looked = queue.receive(args.dead_letters.limit).await?;
    queue.release(looked.dead_letters.iter()).await;
    looked.refuse_missing(&args.dead_letters)?;
    looked.look_up_states(&context, &args.dead_letters).await;
    if context.screen.is_json() {
        let dead_letters: Vec<_> =
            looked.chosen(&args.dead_letters).map(|dead_letter| dead_letter.json(true)).collect();
        let totals = looked.totals(&args.dead_letters);
        let looked = json!({
            "dead_letters": dead_letters, "totals": totals, "looked_at": looked.dead_letters.len(), "more": looked.more
        });
        return context.screen.print_json(&looked, false);
    }
    context.screen.print(&table(&context, &looked, &args.dead_letters, false))?;
    looked.warn();
    Ok(())
}

pub async fn run(global: &Global, args: &Redrive) -> Result<(), Failure> {
    if args.drop && !args.dead_letters.pick_some() {
        return Err(Failure::Usage(
            "--drop needs --id, --kind, --record or --tenant: which dead letters?".into(),
        ));
    }
    let queue = DeadLetterQueue::open(global, &args.dead_letters).await?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let mut looked = queue.receive(args.dead_letters.limit).await?;
    looked.look_up_states(&context, &args.dead_letters).await;
    let outcomes = redrive(&context, &queue, args, &looked).await;
    let gone =
        |dead_letter: &DeadLetter| outcomes.as_ref().is_ok_and(|outcomes| is_gone(outcomes, dead_letter));
    // Dead letters that stay become visible now, and not only after their time-out.
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
    if context.screen.print_plan(&listed, args.change.yes)? {
        looked.warn();
    }
    let mut acts = Vec::new();
    for dead_letter in looked.chosen(&args.dead_letters) {
        match &dead_letter.destination {
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
    // The audit line is written first: no message is moved or dropped without one.
    match (act, &dead_letter.record) {
        (Act::Move { key, to, url }, _) => {
            tracing::debug!(key = %key.hash(), kind = dead_letter.kind, "moves a message");
            let what = format!("redrive-{} to {}", dead_letter.kind, to.name());
            context.operator.note(key, &what, who, reason).await?;
            let (body, group, id) = (dead_letter.body(), key.hash().to_string(), dead_letter.id());
            match to {
                // In the group of its record, behind what was asked for since.
                Queue::Outbox => queue::send_in_group(&queue.client, url, body, &group, &id).await?,
                // In that of its tenant, as the outbox function sends it.
                Queue::Work => {
                    queue::send_fairly(&queue.client, url, body, &key.tenant().hash().to_string()).await?;
                }
                _ => queue::send(&queue.client, url, body).await?,
            }
        }
        (Act::Drop, Some(key)) => {
            tracing::debug!(key = %key.hash(), kind = dead_letter.kind, "drops a message");
            context.operator.note(key, &format!("drop-{}", dead_letter.kind), who, reason).await?;
        }
        // Without a record there is no audit line: only the printed body remains.
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
        let report =
            json!({ done: gone, "left": left, "looked_at": looked.dead_letters.len(), "more": looked.more });
        return context.screen.print_json(&report, false);
    }
    for dead_letter in gone.iter().filter(|dead_letter| args.drop && dead_letter.record.is_none()) {
        let (id, body) = (dead_letter.id(), dead_letter.body());
        context.screen.print(&harmless(&format!("Dropped without a record: {id} {body}")))?;
    }
    for why in left.iter().filter_map(|dead_letter| why(dead_letter)) {
        context.screen.print(&harmless(&format!("Stays: {why}")))?;
    }
    let foreign = looked.chosen(&args.dead_letters).filter(|it| it.destination.is_none()).count();
    if foreign > 0 && !args.drop {
        context.screen.print(&format!(
            "Stays: {foreign} that cannot go back by this command. What to do is in docs/operate.md: \"Dead letters\" by kind, \"Dead letters of a consumer\" by reason."
        ))?;
    }
    let done = if args.drop { "dropped" } else { "moved" };
    context.screen.print(&format!("{} {done}, {} left.", gone.len(), left.len()))
}

impl DeadLetters {
    /// Whether the arguments pick some dead letters. Without them, all are meant.
    fn pick_some(&self) -> bool {
        !self.id.is_empty() || !self.kind.is_empty() || self.record.is_some() || self.tenant.is_some()
    }
}

fn url<'a>(args: &'a Redrive, from: &DeadLetterQueue<'_>, to: Queue) -> Result<&'a str, Failure> {
    let (url, option) = match to {
        Queue::Checks => (&args.to_checks, "--to-checks"),
        Queue::Reconcile => (&args.to_reconcile, "--to-reconcile"),
        Queue::DeferredReports => (&args.to_deferred_reports, "--to-deferred-reports"),
        Queue::Outbox => (&args.to_outbox, "--to-outbox"),
        Queue::Work => (&args.to_work, "--to-work"),
    };
    match url.as_deref() {
        Some(url) if url == from.url => {
            Err(Failure::Usage(format!("{option} is the queue of dead letters itself: nothing was moved")))
        }
        Some(url) => Ok(url),
        None => {
            let name = to.name();
            Err(Failure::Usage(format!("there are messages for the queue `{name}`: give {option} too")))
        }
    }
}
