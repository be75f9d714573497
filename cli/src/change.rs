//! Changes a record by hand: shows it, asks, and writes it with an audit line if it is still what was shown.

use std::{
    env,
    io::{self, BufRead, IsTerminal, Write},
};

use crate::terminal::{harmless, harmless_text};
use lambda_idempotency::{
    key::RecordKey,
    operator::{Correction, CorrectionError, Message},
    record::{Answer, AnswerKind, Record},
    time::Timestamp,
    time_budget::CLOCK_SKEW,
};
use serde_json::json;

use crate::{
    args::{ChangeArgs, Global},
    context::Context,
    failure::Failure,
    output::cell,
    record::{RecordJson, fields, state_fields},
    values::{in_one_unit, words},
};

/// How many characters of a body are shown for confirmation.
const SHOWN_OF_BODY: usize = 4000;

/// A change of one record.
pub struct Change {
    pub key: RecordKey,
    /// What the operator is asked.
    pub question: String,
    pub correction: Correction,
    /// Why the change is refused, if it is.
    pub refusal: fn(&Record) -> Option<Failure>,
    /// What else the operator should know about this change.
    pub remark: fn(&Record, Timestamp) -> Option<String>,
}

impl Change {
    /// Shows the plan, asks, and writes.
    pub async fn make(&self, context: &Context, args: &ChangeArgs) -> Result<(), Failure> {
        let seen = context.load(&self.key).await?;
        let planned = context.operator.preview(&seen, &self.correction);
        let planned = planned.map_err(|error| refused(error, &seen))?;
        if let Some(refusal) = (self.refusal)(&seen) {
            return Err(refusal);
        }
        let remark = (self.remark)(&seen, context.now());
        let mut plan = plan(context, &seen, &planned, remark.as_deref());
        match &self.correction {
            Correction::Executed { answer, messages, .. } => {
                plan.push_str(&body(answer));
                for Message { topic, body } in messages {
                    let (topic, body) = (topic.name(), harmless_text(body.get()));
                    plan.push_str(&format!("\nIt publishes {topic}:\n\n{body}\n"));
                }
            }
            Correction::PhaseExecuted { result, .. } => {
                plan.push_str(&format!("\nThe handler gets this result:\n\n{}\n", harmless_text(result)));
            }
            _ => {}
        }
        context.screen.print_plan(&plan, args.yes)?;
        confirm(args, &self.question)?;
        let (who, what) = (who(args)?, self.correction.name());
        tracing::debug!(key = %self.key.hash(), what, "writes the record and its audit line");
        let written = context.operator.correct(&seen, &self.correction, &who, &args.reason).await?;
        if context.screen.is_json() {
            let (before, after) = (RecordJson::from(&seen), RecordJson::from(&written));
            let done = json!({ "what": what, "before": before, "after": after, "remark": remark });
            return context.screen.print_json(&done, false);
        }
        let (before, after) = (seen.state.name(), written.state.name());
        context.screen.print(&format!("Done: {before} → {after}, with an audit line by {who}."))
    }
}

/// Users of containers, CloudShell, EC2 and Session Manager: they name the machine, and not who sits at it.
const SHARED_USERS: [&str; 4] = ["root", "cloudshell-user", "ec2-user", "ssm-user"];

/// The outcome for a record that another writer changed after it was found.
pub const BUSY: &str = "(changed meanwhile)";

/// Each record that was corrected, with its new state or [`BUSY`].
type Done = Vec<(Record, &'static str)>;

/// Corrects each of these records, until one fails: what was done before is returned too.
pub async fn each(
    context: &Context,
    found: impl IntoIterator<Item = Record>,
    correction: &Correction,
    args: &ChangeArgs,
) -> Result<(Done, Option<Failure>), Failure> {
    let (who, mut done) = (who(args)?, Vec::new());
    for record in found {
        match context.operator.correct(&record, correction, &who, &args.reason).await {
            Ok(next) => done.push((record, next.state.name())),
            Err(CorrectionError::Changed(_) | CorrectionError::Deleted) => done.push((record, BUSY)),
            Err(CorrectionError::NotDead) => {}
            Err(error) => {
                // Other records may have been changed already, so the message names this one.
                let name = name(&record.key);
                let failed = Failure::Error(format!("{name}: {}", Failure::from(error)));
                return Ok((done, Some(failed)));
            }
        }
    }
    Ok((done, None))
}

/// Why the change cannot be made, with the option that would allow it: the library does not know the options.
fn refused(error: CorrectionError, seen: &Record) -> Failure {
    match error {
        CorrectionError::ShortRetention => {
            let least = in_one_unit(seen.retention.max(CLOCK_SKEW));
            Failure::Usage(format!("nothing was changed: `--retain`: {error}: give {least} or more"))
        }
        CorrectionError::WrongKind(kind) => {
            let members = match kind {
                AnswerKind::Http => "`status`",
                AnswerKind::Function => "`payload` or `refusal`",
            };
            Failure::Usage(format!("nothing was changed: {error}: give {members} in the file of --response"))
        }
        error => error.into(),
    }
}

/// The record before and after the change.
fn plan(context: &Context, seen: &Record, planned: &Record, remark: Option<&str>) -> String {
    let (now, screen) = (context.now(), &context.screen);
    let before = screen.fields(fields(seen, now)).trim_fmt();
    let mut after = state_fields(planned, now);
    after.extend(remark.map(|remark| ("remark", cell(remark))));
    format!("{before}\n\nbecomes\n\n{}\n", screen.fields(after).trim_fmt())
}

/// The body that retries will get, or its beginning.
fn body(answer: &Answer) -> String {
    if answer.body.is_empty() {
        return "\nEvery retry gets an empty body.\n".to_owned();
    }
    let text = String::from_utf8_lossy(&answer.body);
    let shown: String = text.chars().take(SHOWN_OF_BODY).collect();
    let rest = if shown.len() < text.len() { "\n…" } else { "" };
    format!(
        "\nEvery retry gets this body, of {} bytes:\n\n{}{rest}\n",
        answer.body.len(),
        harmless_text(&shown)
    )
}

/// The record's name in a question.
pub fn name(key: &RecordKey) -> String {
    harmless(&key.partition_key())
}

/// Asks for confirmation, unless `--yes` is given.
pub fn confirm(args: &ChangeArgs, question: &str) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    eprint!("{question} Type yes to continue: ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::from_error(&error))?;
    if is_yes(&answer) { Ok(()) } else { Err(Failure::Error("not confirmed: nothing was changed".into())) }
}

/// Only the whole word confirms: a typing error must not.
fn is_yes(answer: &str) -> bool {
    answer.trim() == "yes"
}

/// Checks, before anything is read, that the audit line has a name and that an operator can confirm. It comes after the checks of the
/// command's own arguments: an operator who adds `--yes` for the lack of a terminal must not do so to a wrong command.
pub fn check(global: &Global, args: &ChangeArgs) -> Result<(), Failure> {
    Context::table(global)?;
    who(args)?;
    if args.yes || io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::Usage("there is no terminal for the question: give --yes to skip it".into()))
}

/// Who makes the change, as they name themselves. CloudTrail records whose credentials were used.
pub fn who(args: &ChangeArgs) -> Result<String, Failure> {
    if let Some(who) = &args.who {
        return Ok(who.clone());
    }
    let unnamed = |why: &str| Failure::Usage(format!("who makes the change? Give --as: {why}"));
    let user = ["USER", "LOGNAME"].iter().find_map(|name| words(&env::var(name).ok()?).ok());
    let user = user.ok_or_else(|| unnamed("neither USER nor LOGNAME is set"))?;
    if SHARED_USERS.contains(&&*user) {
        return Err(unnamed(&format!("the user `{user}` may be anybody")));
    }
    Ok(format!("{user}@{}", gethostname::gethostname().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_word_confirms() {
        assert!(is_yes("yes\n") && is_yes(" yes"));
        for no in ["", "\n", "y\n", "Y", "YES", "yes!", "no", "yes no"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
