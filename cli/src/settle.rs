//! `settle`: settles an unknown outcome after an operator has found out whether the operation was executed.

use std::fmt;

use serde_json::value::RawValue;

use crate::terminal::harmless;
use lambda_idempotency::{
    operator::{Correction, Message},
    outbox::Topics,
    record::{Evidence, Record, State},
    time::Timestamp,
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};

use crate::{
    args::{Global, Settle},
    change::{self, Change},
    context::Context,
    denied,
    failure::Failure,
    output::iso,
    response,
};

/// Why it is not settled as not executed without a further word.
fn reported(seen: &Record) -> Option<Failure> {
    (seen.reported == Some(Evidence::Effect)).then(|| {
        Failure::NotAsExpected(
            "nothing was changed: an effect of this operation was reported, or an operator holds it, and a retry would run it \
             again. Look at `show --reports`, at the contradictions and at the provider; if nothing was done after all, give --overrule-effect"
                .into(),
        )
    })
}

/// What else the operator should know.
type Remark = fn(&Record, Timestamp) -> Option<String>;

pub async fn run(global: &Global, args: &Settle) -> Result<(), Failure> {
    if args.denied {
        return denied::run(global, args).await;
    }
    let (key, retain) = (args.record.record_key()?, args.retain);
    let (what, correction, remark): (_, _, Remark) = match (&args.phase, &args.result, &args.response) {
        (Some(phase), Some(result), _) => {
            let (phase, result) = (phase.clone(), response::json("--result", result)?);
            ("executed", Correction::PhaseExecuted { phase, result }, resumed)
        }
        (Some(phase), None, _) => {
            let correction = Correction::PhaseNotExecuted { phase: phase.clone() };
            ("not executed", correction, late_call)
        }
        (None, _, Some(file)) => {
            let answer = response::read(file, &args.header, &args.keep_header)?;
            let messages = messages(&args.publish)?;
            ("completed", Correction::Executed { answer, retain, messages }, left_out)
        }
        (None, _, None) => ("not executed", Correction::NotExecuted { retain }, late_effect),
    };
    change::check(global, &args.change)?;
    let mut context = Context::open(global).await?;
    for name in &args.keep_header {
        context.operator = context.operator.keep_header(name);
    }
    let phase = args.phase.iter().map(|phase| format!("phase {} of ", harmless(phase)));
    let question = format!("Settle {}{} as {what}?", phase.collect::<String>(), change::name(&key));
    let refusal = if args.not_executed && !args.overrule_effect { reported } else { |_: &Record| None };
    Change { key, question, correction, refusal, remark }.make(&context, &args.change).await
}

/// The messages of `--publish`. Each topic is in the list by which they are delivered.
fn messages(publish: &[String]) -> Result<Vec<Message>, Failure> {
    let wrong = |what: &dyn fmt::Display| Failure::Usage(format!("--publish: {what}"));
    let topics = match publish {
        [] => return Ok(Vec::new()),
        _ => Topics::from_env().map_err(|error| wrong(&error))?,
    };
    let message = |argument: &String| {
        let (topic, body) =
            argument.split_once('=').ok_or_else(|| wrong(&"write TOPIC=JSON or TOPIC=@FILE"))?;
        let topic = topics.topic(topic).map_err(|error| wrong(&error))?;
        let body =
            RawValue::from_string(response::json("--publish", body)?).map_err(|error| wrong(&error))?;
        Ok(Message { topic, body })
    };
    publish.iter().map(message).collect()
}

fn resumed(seen: &Record, _: Timestamp) -> Option<String> {
    let unknown = seen.reported.is_some().then_some(
        "; the record stays unknown until you say of the next phase: --not-executed --overrule-effect",
    );
    let used = "the next retry with this key uses the result when its handler gets to the phase";
    Some(format!("{used}{}", unknown.unwrap_or_default()))
}

/// What settling a record does not do.
fn left_out(_: &Record, _: Timestamp) -> Option<String> {
    Some(
        "makes no domain writes, and publishes only what --publish says: if the operation has rows, write them yourself after it is settled"
            .to_owned(),
    )
}

fn late_call(seen: &Record, now: Timestamp) -> Option<String> {
    too_early(seen, now, "the next retry with this key makes the call")
}

fn late_effect(seen: &Record, now: Timestamp) -> Option<String> {
    too_early(seen, now, "the next retry with this key runs the operation")
}

/// What follows from a release, and whether it may be too early: a request of the worker can be in flight for as long as
/// reconciliation waits before "not found" is proof.
fn too_early(seen: &Record, now: Timestamp, runs: &str) -> Option<String> {
    let observe = match seen.state {
        State::Unknown { since, .. } | State::BetweenWorkers { since, .. } => since,
        State::InProgress { lease_until } => lease_until,
        _ => return None,
    };
    let reported = match seen.reported {
        Some(Evidence::Effect) => "overrules the effect that was reported; ",
        Some(Evidence::Perhaps) => "overrules another execution that perhaps ran it; ",
        None => "",
    };
    let over = observe.plus(DEFAULT_NOT_FOUND_GRACE);
    Some(match iso(over).filter(|_| over > now) {
        Some(over) => format!(
            "{reported}too early? Until {over} a request of the worker may still take effect; {runs}, and the effect could happen twice"
        ),
        None => format!("{reported}{runs}"),
    })
}
