//! `settle`: somebody has found out what became of an unknown outcome.

use lambda_idempotency::{
    record::{BodyId, Encoding, KeptBody, KeptResponse, Place, Record, Revision, Verdict},
    store::Store,
    time::Timestamp,
};

use crate::{
    args::{Global, Settle},
    change::{self, Next},
    context::Context,
    failure::Failure,
    response::Response,
};

pub async fn run(global: &Global, args: &Settle) -> Result<(), Failure> {
    change::check(&args.change)?;
    let key = args.record.record_key()?;
    let response = args.response.as_deref().map(Response::read).transpose()?;
    let context = Context::open(global).await?;
    let (what, outcome) = match response {
        Some(_) => ("settle-completed", "completed"),
        None => ("settle-not-executed", "not executed"),
    };
    let question = format!("Settle {} as {outcome}?", change::name(&key));
    let id = BodyId::mint();
    let next = |seen: &Record, revision, now| match &response {
        Some(response) => completed(&context, args, response, id, seen, revision, now),
        None => settled(args, Verdict::NotExecuted, seen, revision, now).map(|record| Next {
            record,
            body: None,
            remark: None,
        }),
    };
    change::change(&context, &args.change, &key, what, &question, next).await
}

fn settled(
    args: &Settle,
    verdict: Verdict,
    seen: &Record,
    revision: Revision,
    now: Timestamp,
) -> Result<Record, Failure> {
    seen.settle(verdict, revision, now, args.retain)
        .map_err(|unsettled| Failure::NotAsExpected(format!("nothing was changed: {unsettled}")))
}

/// The body is in the record while that costs a replay nothing, else beside it.
fn completed(
    context: &Context,
    args: &Settle,
    response: &Response,
    id: BodyId,
    seen: &Record,
    revision: Revision,
    now: Timestamp,
) -> Result<Next, Failure> {
    let (bytes, encoding, length) = (response.body.clone(), Encoding::Identity, response.body.len() as u64);
    let record = |body| {
        let (status, headers) = (response.status, response.headers.clone());
        settled(args, Verdict::Executed(KeptResponse { status, headers, body }), seen, revision, now)
    };
    let inline = record(KeptBody::Inline { bytes: bytes.clone(), encoding, length })?;
    if bytes.len() <= context.store.room_for_body(&inline) {
        return Ok(Next { record: inline, body: None, remark: None });
    }
    let outside = record(KeptBody::Outside { id, place: Place::Beside, encoding, length })?;
    Ok(Next { record: outside, body: Some((id, bytes)), remark: None })
}
