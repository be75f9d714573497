//! `settle --denied`: releases what is held, and what the provider has denied since.

use lambda_idempotency::{
    operator::Correction,
    record::{Note, Record, State},
    store::{NotFoundSwitch, Unsettled},
    time_budget::CLOCK_SKEW,
};
use serde_json::json;

use crate::{
    alarms::kinds,
    args::{Global, Settle},
    change::{self, BUSY},
    context::Context,
    failure::{Failure, unreadable},
    list,
    several::{self, Refused},
    values,
};

pub async fn run(global: &Global, args: &Settle) -> Result<(), Failure> {
    let tenant = list::tenant(args.record.tenant.as_deref())?;
    let invalid = |error| Failure::Usage(format!("invalid operation: {error}"));
    let operation = args.record.operation.as_deref().map(values::operation).transpose().map_err(invalid)?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let is_meant = |record: &Record| {
        let held = record.last_failure.as_ref().map_or("", Note::as_str);
        record.is_held()
            && operation.as_ref().is_none_or(|name| record.key.operation() == name)
            && args.held.as_ref().is_none_or(|words| has_words(held, words))
    };
    let ([held], unread) = list::unresolved(&context, tenant.as_ref(), [&is_meant], usize::MAX).await?;
    let (denied, others): (Vec<_>, Vec<_>) = held.into_iter().partition(Record::is_denied);
    let mut refused: Vec<_> = others.into_iter().map(stays_held).collect();
    let switch = context.store.not_found_switch().await?;
    let (denied, unproven): (Vec<_>, Vec<_>) =
        denied.into_iter().partition(|record| !record.is_not_found() || is_proof(record, switch.as_ref()));
    refused.extend(unproven.into_iter().map(|record| Refused::new(record, UNPROVEN.to_owned())));
    let correction = Correction::NotExecuted { retain: args.retain };
    let denied = several::allowed(&context, denied, &correction, &mut refused);
    show(&context, args, &denied, &refused)?;
    if !denied.is_empty() {
        let question =
            format!("Settle these {} as not executed? The next retry of each runs it.", denied.len());
        change::confirm(&args.change, &question)?;
    }
    let (done, failed) = change::each(&context, denied, &correction, &args.change).await?;
    // What was done is printed even if not all were settled.
    print(&context, &done, &refused)?;
    failed.map_or(Ok(()), Err)?;
    unreadable(unread)?;
    // Those that the provider did not deny were not meant.
    several::each_was_meant(&done, &[], "settled")
}

/// Why a record that the provider does not find stays held.
const UNPROVEN: &str =
    "it was not found during an incident: `not-found-releases` was off since, so ask again once it is on";

/// Whether "not found" is proof: the switch is on, and was when the provider was asked.
fn is_proof(record: &Record, switch: Option<&NotFoundSwitch>) -> bool {
    let State::Unknown { anew_at: Some(asked_at), .. } = record.state else { return false };
    switch.is_none_or(|switch| switch.releases && switch.at.plus(CLOCK_SKEW) <= asked_at)
}

/// Whether a hold has these words whole in its reason: `INC-17` is neither `INC-170` nor `INC-17-2`.
fn has_words(held: &str, words: &str) -> bool {
    let reason = held.strip_prefix("held: ").unwrap_or(held);
    // Without a name behind it, the line was cut: its end may be a part of a word.
    let (reason, is_whole) =
        reason.rsplit_once(", by ").map_or((reason, false), |(reason, _)| (reason, true));
    !words.is_empty()
        && reason.match_indices(words).any(|(at, _)| {
            let (before, after) = (&reason[..at], &reason[at + words.len()..]);
            let ends = is_whole || !after.is_empty();
            ends && !goes_on(before.chars().rev()) && !goes_on(after.chars())
        })
}

/// Whether a word does not end here.
fn goes_on(mut next: impl Iterator<Item = char>) -> bool {
    match next.next() {
        Some('-' | '_' | '.' | ':' | '/' | '#') => next.next().is_some_and(char::is_alphanumeric),
        next => next.is_some_and(char::is_alphanumeric),
    }
}

/// A record that is not released, and why.
fn stays_held(record: Record) -> Refused {
    let alarms = kinds(&record);
    let why = match &record.note {
        _ if !alarms.is_empty() => format!("it has an alarm: {}", alarms.join(", ")),
        _ if let Some(id) = &record.effect_id => format!("the provider named its effect: {id}"),
        Some(note) => note.to_string(),
        None => "the provider was not asked since".to_owned(),
    };
    Refused::new(record, why)
}

fn show(context: &Context, args: &Settle, denied: &[Record], refused: &[Refused]) -> Result<(), Failure> {
    let screen = &context.screen;
    let table = || list::table(screen, denied, context.now()).trim_fmt();
    let denied = (!denied.is_empty()).then(table);
    let tables: Vec<_> = denied.into_iter().chain(several::table(screen, "stays held", refused)).collect();
    if !tables.is_empty() {
        screen.print_plan(&tables.join("\n\n"), args.change.yes)?;
    }
    Ok(())
}

fn print(context: &Context, done: &[(Record, &'static str)], refused: &[Refused]) -> Result<(), Failure> {
    let settled = done.iter().filter(|(_, is)| *is != BUSY).count();
    if context.screen.is_json() {
        let (records, not_settled) = (several::done_json(done), several::refused_json(refused));
        let document = json!({ "settled": settled, "records": records, "not_settled": not_settled });
        return context.screen.print_json(&document, false);
    }
    context.screen.print(&format!(
        "{settled} settled as not executed, each with an audit line; {} changed meanwhile, {} stay held.",
        done.len() - settled,
        refused.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_of_a_hold_pick_its_record() {
        let held = "held: INC-17 of the provider, by olga@example.com";
        for words in ["INC-17", "INC-17 of the provider", "the provider"] {
            assert!(has_words(held, words), "{words}");
        }
        for words in ["", "INC-1", "NC-17", "17", "INC-170", "provide", "held", "olga", "olga@example.com"] {
            assert!(!has_words(held, words), "{words}");
        }
        let of = |reason: &str| format!("held: {reason}, by olga");
        for reason in
            ["INC-170", "INC-17-2", "INC-17_b", "INC-17.5", "INC-17:b", "INC-17/2", "INC-17#2", "X-INC-17"]
        {
            assert!(!has_words(&of(reason), "INC-17"), "{reason}");
        }
        for reason in
            ["INC-17", "INC-17.", "INC-17: the bank", "INC-170, INC-17", "(INC-17)", "INC-17 - again"]
        {
            assert!(has_words(&of(reason), "INC-17"), "{reason}");
        }
        // It was cut.
        assert!(!has_words("held: see INC-1", "INC-1") && has_words("held: INC-1 is a lo", "INC-1"));
    }
}
