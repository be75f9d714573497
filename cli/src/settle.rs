//! `settle`: somebody has found out what became of an unknown outcome.

use lambda_idempotency::operator::Correction;

use crate::{
    args::{Global, Settle},
    change::{self, Change},
    context::Context,
    failure::Failure,
    response,
};

pub async fn run(global: &Global, args: &Settle) -> Result<(), Failure> {
    change::check(&args.change)?;
    let (key, retain) = (args.record.record_key()?, args.retain);
    let (outcome, correction) = match &args.response {
        Some(file) => {
            let answer = response::read(file)?;
            ("completed", Correction::Executed { answer, retain })
        }
        None => ("not executed", Correction::NotExecuted { retain }),
    };
    let context = Context::open(global).await?;
    let question = format!("Settle {} as {outcome}?", change::name(&key));
    Change { key, question, correction, remark: |_| None }.make(&context, &args.change).await
}
