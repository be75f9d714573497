//! `forget-response`: deletes a kept answer that must not be kept any longer.

use lambda_idempotency::{
    operator::Correction,
    record::{Place, Record, State},
    time::Timestamp,
};

use crate::{
    args::{Forget, Global},
    change::{self, Change},
    context::Context,
    failure::Failure,
};

pub async fn run(global: &Global, args: &Forget) -> Result<(), Failure> {
    let key = args.record.record_key()?;
    change::check(global, &args.change)?;
    let context = Context::open(global).await?;
    let question = format!("Delete the response that {} keeps?", change::name(&key));
    Change { key, question, correction: Correction::ForgetAnswer, refusal: |_| None, remark }
        .make(&context, &args.change)
        .await
}

/// The change deletes a body item and the reports beside the record, but no object in S3.
fn remark(seen: &Record, _: Timestamp) -> Option<String> {
    let State::Completed { answer, .. } = &seen.state else { return None };
    let id = answer.body_id().filter(|_| answer.body_place() == Place::S3.name());
    let stays =
        id.map(|id| format!("the object `…/{id}` stays in S3 until you, or a lifecycle rule, delete it"));
    let number = seen.alarms.iter().filter(|alarm| alarm.report.is_some()).count();
    let beside = (number > 0).then(|| format!("the reports beside the record ({number}) are deleted too"));
    let remarks: Vec<_> = stays.into_iter().chain(beside).collect();
    (!remarks.is_empty()).then(|| remarks.join("; "))
}
