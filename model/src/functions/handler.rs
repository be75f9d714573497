//! The handlers of requests and of accepted work.

use std::time::Duration;

use lambda_idempotency::{
    Execution,
    engine::{CallError, PhaseError, Report},
    record::{Answer, MAX_PHASE_RESULTS},
    world::World,
};

use super::{
    call::{Call, Effect},
    ids::THE_KEY,
    outbox::message,
    scenario::{Guarded, Rows},
    services::Machine,
    shelf::{PHASE, READ, ROW, answer, row, rows},
};

/// The handler: asks the provider for the effect.
pub async fn handle(machine: &Machine, execution: &Execution) -> (Report, Option<Answer>) {
    let scenario = machine.universe.lock().scenario;
    if scenario.work > 0 {
        machine.sleep(Duration::from_secs(scenario.work)).await;
    }
    machine.call(Call::Handler).await;
    if scenario.looks && execution.is_lost() {
        return (Report::NotExecuted(None), None);
    }
    if let Guarded::Resumed(keys_live) = scenario.guarded {
        return phases(machine, execution, Duration::from_secs(keys_live)).await;
    }
    if let Some(row) = row(scenario.rows) {
        // A row that cannot be added shows at the end: it is missing.
        let _ = execution.write(row);
    }
    let number = machine.process + 1;
    let effect = match scenario.guarded {
        Guarded::Reserved => machine.effect(THE_KEY).await,
        _ => Effect::Executed,
    };
    let status = match effect {
        Effect::Executed => 201,
        Effect::Refused => 402,
        Effect::NoAnswer => return (Report::perhaps("handler_failed"), None),
        Effect::NotSent => return (Report::NotExecuted(None), None),
    };
    for place in 0..if status == 201 { scenario.messages } else { 0 } {
        let _ = execution.write(message(number, place));
    }
    let answer = answer(status, number);
    (Report::Completed(answer.clone()), Some(answer))
}

/// The handler of an operation that resumes: the provider's effect, then its row.
async fn phases(machine: &Machine, execution: &Execution, keys_live: Duration) -> (Report, Option<Answer>) {
    let ended = async {
        let scenario = machine.universe.lock().scenario;
        if scenario.rows == Rows::ManyRefused {
            // Next to all that a record keeps of results.
            let read = execution.phase(READ).keys_live(keys_live);
            let _: String =
                read.call(async |_| Ok::<_, CallError>("x".repeat(MAX_PHASE_RESULTS - 8))).await?;
        }
        let charge = execution.phase(PHASE).keys_live(keys_live).call(async |_| {
            match machine.effect(THE_KEY).await {
                // The provider's id for it.
                Effect::Executed => {
                    Ok(Some(machine.universe.lock().shelf(THE_KEY).effects.last().map_or(0, |by| by + 1)))
                }
                Effect::Refused => Ok(None),
                Effect::NoAnswer => Err(CallError::Perhaps("no answer".into())),
                Effect::NotSent => Err(CallError::not_executed("nothing was sent")),
            }
        });
        let Some(number) = charge.await? else { return Ok(answer(402, machine.process + 1)) };
        // The first message commits with the row, the others with the answer.
        let mut messages = (0..scenario.messages).map(|place| message(number, place));
        let writes = rows(scenario.rows).into_iter().chain(messages.next());
        execution.commit(ROW, writes.collect()).await?;
        messages.for_each(|message| drop(execution.write(message)));
        Ok::<_, PhaseError>(answer(201, number))
    };
    match ended.await {
        Ok(answer) => (Report::Completed(answer.clone()), Some(answer)),
        // As a handler that answers 500.
        Err(_) => (Report::perhaps("handler_failed"), None),
    }
}
