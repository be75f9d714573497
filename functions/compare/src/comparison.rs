//! One comparison: from the input to the summary.

use std::io::{self, Write};

use lambda_idempotency::{telemetry::error_chain, world::World};
use ledgers::{Day, Difference, Summary, compare};
use orders::Shop;
use payments::{Ledger, Provider, SealingKeys};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Failure, Reports,
    booked::{Booked, Stray},
    pages::{ours, theirs},
};

/// How many differences are logged one by one; the report lists them all.
const LOGGED: u64 = 100;

/// Compares the ledgers of a day.
#[derive(Debug)]
pub struct Comparison {
    /// Our payments.
    pub ledger: Ledger,
    /// Our orders.
    pub shop: Shop,
    /// Theirs.
    pub provider: Provider,
    /// Opens the correlation from a charge to its record.
    pub sealing_keys: SealingKeys,
    /// Where reports go.
    pub reports: Reports,
    /// The clock, which says which day was yesterday, and the waits between retries.
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
    /// How many of those that only the provider has can be in no ledger of ours.
    pub stray: u64,
}

impl Comparison {
    /// Compares the day that the input names, or else yesterday and the day before.
    ///
    /// # Errors
    /// If the input is invalid, or the report of a day could not be completed. The other day is compared nevertheless.
    pub async fn run(&self, input: Value) -> Result<Vec<Compared>, Failure> {
        let mut compared = Vec::new();
        for day in self.days(input).inspect_err(log_failure)? {
            compared.push(self.compare(day).await.inspect_err(log_failure));
        }
        compared.into_iter().collect()
    }

    /// Yesterday and the day before. Some of yesterday's charges may still be under reconciliation, which takes a day at most; that
    /// of the day before is over.
    fn days(&self, input: Value) -> Result<Vec<Day>, Failure> {
        let Job::Compare { day } = serde_json::from_value(input).map_err(|_| Failure::MalformedInput)?;
        Ok(match day {
            Some(day) => vec![day.parse().map_err(|_| Failure::MalformedDay)?],
            None => {
                let yesterday = Day::of(self.world.now()).before();
                vec![yesterday, yesterday.before()]
            }
        })
    }

    async fn compare(&self, day: Day) -> Result<Compared, Failure> {
        // By the second comparison, reconciliation of the day is over: a difference stays until an operator settles it.
        let again = day < Day::of(self.world.now()).before();
        let mut draft = self.reports.draft().map_err(Failure::report)?;
        let (mut logged, mut stray) = (0, 0);
        let ours = ours(&self.ledger, &self.shop, day, &*self.world);
        let theirs = theirs(&self.provider, &self.sealing_keys, day, &*self.world);
        let summary = compare(ours, theirs, |difference| {
            if logged < LOGGED {
                log(day, &difference);
            }
            logged += 1;
            match stray_of(&difference) {
                None => difference.write_line(&mut draft),
                Some((name, theirs)) => {
                    stray += 1;
                    write_stray(&mut draft, name, difference.id(), theirs)
                }
            }
        });
        let summary = summary.await?;
        let day = day.to_string();
        let mut last = json!({ "summary": summary });
        last["summary"]["day"] = json!(day);
        last["summary"]["stray"] = json!(stray);
        writeln!(draft, "{last}").map_err(Failure::report)?;
        let report = self.reports.publish(draft, &format!("{day}.jsonl")).await?;
        let compared = Compared { day, report, summary, stray };
        let Compared { day, report, summary, .. } = &compared;
        if summary.agrees() {
            tracing::info!(day, again, report, ?summary, "the ledgers agree");
        } else {
            let logged = logged.min(LOGGED);
            tracing::warn!(day, again, report, ?summary, stray, logged, "the ledgers differ");
        }
        Ok(compared)
    }
}

fn log_failure(error: &Failure) {
    tracing::error!(name = error.name(), error = error_chain(error), "the comparison failed");
}

/// What can be in no ledger of ours, with its name.
fn stray_of<'a>(difference: &Difference<'a, Booked>) -> Option<(Stray, &'a Booked)> {
    match difference {
        Difference::OnlyTheirs { theirs, .. } => Some((theirs.stray?, theirs)),
        _ => None,
    }
}

/// Writes it as a line of the report, whose difference has its name.
fn write_stray(report: &mut impl Write, name: Stray, id: &str, theirs: &Booked) -> io::Result<()> {
    let name = name.as_str();
    writeln!(report, "{}", json!({ "difference": name, "id": id, "theirs": theirs }))
}

/// Names only the id of the charge or refund, and the hash of its record's key; the report has the rest.
fn log(day: Day, difference: &Difference<'_, Booked>) {
    let (name, booked) = match difference {
        Difference::OnlyOurs { ours, .. } => ("only_ours", ours),
        Difference::OnlyTheirs { theirs, .. } => (theirs.stray.map_or("only_theirs", Stray::as_str), theirs),
        Difference::Differs { theirs, .. } => ("differs", theirs),
        Difference::Duplicate { value, .. } => ("duplicate", value),
    };
    let (id, kind, key) = (difference.id(), booked.kind.as_str(), booked.names.record.as_deref());
    tracing::warn!(%day, difference = name, id, kind, key, "the ledgers differ");
}
