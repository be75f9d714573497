//! How a record is changed by hand: shown, confirmed, written where it still is what was shown, with its audit line.

use std::{
    env,
    io::{self, BufRead, IsTerminal, Write},
};

use bytes::Bytes;
use comfy_table::Cell;
use lambda_idempotency::{
    key::RecordKey,
    record::{BodyId, Record, Revision},
    store::{Put, Store, StoreError, StoreErrorKind, dynamodb::AuditNote},
    time::Timestamp,
};
use serde_json::json;

use crate::{
    args::ChangeArgs,
    context::Context,
    failure::Failure,
    output::harmless,
    record::{RecordJson, fields, state_fields},
    values::words,
};

/// What a record is to become.
pub struct Next {
    pub record: Record,
    /// A body that is to be kept beside it.
    pub body: Option<(BodyId, Bytes)>,
    /// What else there is to say.
    pub remark: Option<String>,
}

/// Changes the record of `key` to what `next` makes of it. `what` stands in the audit line, `question` is asked. `next` says
/// no where the record is not as the change expects.
pub async fn change(
    context: &Context,
    args: &ChangeArgs,
    key: &RecordKey,
    what: &str,
    question: &str,
    next: impl Fn(&Record, Revision, Timestamp) -> Result<Next, Failure>,
) -> Result<(), Failure> {
    let seen = context.load(key).await?;
    let revision = Revision::mint();
    let planned = next(&seen, revision, context.now())?;
    let plan = plan(context, &seen, &planned);
    if !context.screen.is_json() {
        context.screen.print(&plan)?;
    } else if !args.yes {
        // Standard output is a program's; who is asked must see the record all the same.
        eprintln!("{plan}");
    }
    confirm(args, question)?;
    // Anew: the question may have stood there for a while, and a record is kept from now on.
    let now = context.now();
    let next = next(&seen, revision, now)?;
    if let (Some((id, body)), Some(expires_at)) = (next.body, next.record.state.expires_at()) {
        // First, as everywhere: a record never names a body that is not there. One that no record names in the end goes
        // with its time to live.
        if context.store.keep_body(key, id, body, expires_at).await?.is_none() {
            return Err(Failure::Error("the body is too large to be kept: nothing was changed".into()));
        }
    }
    let note = AuditNote { who: who(args)?, at: now, what: what.to_owned(), reason: args.reason.clone() };
    tracing::debug!(key = %key.hash(), what, "writes the record and its audit line");
    match context.store.swap_audited(&seen, &next.record, &note).await {
        Ok(Put::Written) => {}
        Ok(Put::Refused(Some(there))) => {
            let state = there.state.name();
            return Err(Failure::NotAsExpected(format!(
                "nothing was changed: the record was changed meanwhile, and is {state} now"
            )));
        }
        Ok(Put::Refused(None)) => {
            return Err(Failure::NotAsExpected(
                "nothing was changed: the record was deleted meanwhile".into(),
            ));
        }
        Err(error) => look_again(context, key, &next.record, error).await?,
    }
    if context.screen.is_json() {
        let (before, after) = (RecordJson::from(&seen), RecordJson::from(&next.record));
        let done = json!({ "what": what, "before": before, "after": after, "remark": next.remark });
        return context.screen.print_json(&done, false);
    }
    let (before, after) = (seen.state.name(), next.record.state.name());
    context.screen.print(&format!("Done: {before} → {after}, with an audit line by {}.", note.who))
}

/// After an error that says nothing about whether the change was applied, the record itself may.
async fn look_again(
    context: &Context,
    key: &RecordKey,
    next: &Record,
    error: StoreError,
) -> Result<(), Failure> {
    if !matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::Throttled) {
        return Err(Failure::Error(format!("nothing was changed: {}", Failure::from(error))));
    }
    match context.store.load(key).await {
        Ok(Some(there)) if there.revision == next.revision => Ok(()),
        _ => Err(Failure::Error(format!(
            "whether the record was changed is not known, look with `show`: {}",
            Failure::from(error)
        ))),
    }
}

/// The record as it is, and as it is to be.
fn plan(context: &Context, seen: &Record, next: &Next) -> String {
    let (now, screen) = (context.now(), &context.screen);
    let before = screen.fields(fields(seen, now)).trim_fmt();
    let mut after = state_fields(&next.record, now);
    after.extend(next.remark.iter().map(|remark| ("remark", Cell::new(remark))));
    format!("{before}\n\nis to become\n\n{}\n", screen.fields(after).trim_fmt())
}

/// How a question names a record.
pub fn name(key: &RecordKey) -> String {
    harmless(&key.partition_key())
}

/// Asks. Without a terminal nobody can answer, so a change must say `--yes` there.
pub fn confirm(args: &ChangeArgs, question: &str) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    eprint!("{question} Type yes to go on: ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::from_error(&error))?;
    if is_yes(&answer) { Ok(()) } else { Err(Failure::Error("not confirmed: nothing was changed".into())) }
}

/// The whole word, as the question says: a slip of the hand is none.
fn is_yes(answer: &str) -> bool {
    answer.trim() == "yes"
}

/// Before anything is read: whether there is somebody to ask, and a name for the audit line.
pub fn check(args: &ChangeArgs) -> Result<(), Failure> {
    who(args)?;
    if args.yes || io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::Usage("there is no terminal to ask on: give --yes, and nothing is asked".into()))
}

/// Who makes the change, as they say; whose credentials it was is in the account's own trail.
pub fn who(args: &ChangeArgs) -> Result<String, Failure> {
    if let Some(who) = &args.who {
        return Ok(who.clone());
    }
    let user = ["USER", "LOGNAME"].iter().find_map(|name| words(&env::var(name).ok()?).ok());
    let nobody =
        || Failure::Usage("who makes the change? Give --as: neither USER nor LOGNAME says it".into());
    Ok(format!("{}@{}", user.ok_or_else(nobody)?, gethostname::gethostname().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R28
    #[test]
    fn only_the_whole_word_confirms() {
        assert!(is_yes("yes\n") && is_yes(" yes"));
        for no in ["", "\n", "y\n", "Y", "YES", "yes!", "no", "yes no"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
