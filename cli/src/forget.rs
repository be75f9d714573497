//! `forget-response`: a kept answer that must not be kept any longer.

use lambda_idempotency::record::{KeptBody, Place, Record, Revision, State};

use crate::{
    args::{Forget, Global},
    change::{self, Next},
    context::Context,
    failure::Failure,
};

pub async fn run(global: &Global, args: &Forget) -> Result<(), Failure> {
    change::check(&args.change)?;
    let key = args.record.record_key()?;
    let context = Context::open(global).await?;
    let question = format!("Drop what {} keeps of its response?", change::name(&key));
    change::change(&context, &args.change, &key, "forget-response", &question, |seen, revision, _| {
        forgotten(seen, revision)
    })
    .await
}

fn forgotten(seen: &Record, revision: Revision) -> Result<Next, Failure> {
    let no = |why: String| Failure::NotAsExpected(format!("nothing was changed: {why}"));
    let State::Completed { response, .. } = &seen.state else {
        return Err(no(format!("the record is {}: it keeps no response", seen.state.name())));
    };
    let remark = match &response.body {
        KeptBody::Omitted { .. } if response.headers.is_empty() => {
            return Err(no("the record keeps neither headers nor a body".into()));
        }
        KeptBody::Outside { id, place: Place::S3, .. } => {
            Some(format!("the object `…/{id}` stays in S3 until you, or a lifecycle rule, delete it"))
        }
        _ => None,
    };
    let record = seen.forget_response(revision).ok_or_else(|| no("the record keeps no response".into()))?;
    Ok(Next { record, body: None, remark })
}
