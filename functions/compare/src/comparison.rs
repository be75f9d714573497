//! One comparison: from the input to the summary.

use std::io::Write;

use lambda_idempotency::{key::OperationName, world::World};
use ledgers::{Day, Difference, Summary, compare};
use payments::{Ledger, Provider, policy::CREATE_PAYMENT};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Failure, Reports,
    pages::{Charged, ours, theirs},
};

/// How many differences are logged one by one; the report has all.
const LOGGED: u64 = 100;

/// Compares the ledgers of a day.
#[derive(Debug)]
pub struct Comparison {
    /// Ours.
    pub ledger: Ledger,
    /// Theirs.
    pub provider: Provider,
    /// Where reports go.
    pub reports: Reports,
    /// What says which day yesterday was.
    pub world: Box<dyn World>,
}

#[derive(Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
enum Job {
    Compare { day: Option<String> },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The day.
    pub day: String,
    /// Where the report is.
    pub report: String,
    /// What was found.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Comparison {
    /// Does what the input asks for.
    ///
    /// # Errors
    /// If the input makes no sense, and where there is no whole report.
    pub async fn run(&self, input: Value) -> Result<Compared, Failure> {
        let compared = self.compare(input).await;
        if let Err(error) = &compared {
            tracing::error!(name = error.name(), error = error.causes(), "the ledgers are not compared");
        }
        compared
    }

    async fn compare(&self, input: Value) -> Result<Compared, Failure> {
        let Job::Compare { day } = serde_json::from_value(input).map_err(|_| Failure::MalformedInput)?;
        let day: Day = match day {
            Some(day) => day.parse().map_err(|_| Failure::MalformedDay)?,
            None => Day::of(self.world.now()).before(),
        };
        let mut draft = self.reports.draft().map_err(Failure::report)?;
        let mut logged = 0;
        let operation = OperationName::parse(CREATE_PAYMENT).expect("a constant name");
        let (ours, theirs) =
            (ours(&self.ledger, day, &*self.world), theirs(&self.provider, day, &*self.world));
        let summary = compare(&operation, ours, theirs, |difference| {
            if logged < LOGGED {
                log(day, &difference);
            }
            logged += 1;
            difference.write_line(&mut draft)
        });
        let summary = summary.await?;
        let day = day.to_string();
        let mut last = json!({ "summary": summary });
        last["summary"]["day"] = json!(day);
        writeln!(draft, "{last}").map_err(Failure::report)?;
        let report = self.reports.publish(draft, &format!("{day}.jsonl")).await?;
        let compared = Compared { day, report, summary };
        let Compared { day, report, summary } = &compared;
        if summary.agrees() {
            tracing::info!(day, report, ?summary, "the ledgers agree");
        } else {
            tracing::warn!(day, report, ?summary, logged = logged.min(LOGGED), "the ledgers differ");
        }
        Ok(compared)
    }
}

/// By the charge's id alone: the report says the rest.
fn log(day: Day, difference: &Difference<'_, Charged>) {
    let kind = match difference {
        Difference::OnlyOurs { .. } => "only_ours",
        Difference::OnlyTheirs { .. } => "only_theirs",
        Difference::Differs { .. } => "differs",
        Difference::Duplicate { .. } => "duplicate",
    };
    tracing::warn!(%day, difference = kind, charge = difference.id(), "the ledgers differ in a charge");
}
