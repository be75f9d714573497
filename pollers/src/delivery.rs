//! Delivers batches to the function, until each record is done or dropped.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use aws_smithy_types::date_time::{DateTime, Format};
use serde_json::{Value, json};
use tokio::time;
use uuid::Uuid;

use crate::{
    batch::{Batch, Dropped, Record},
    checkpoints::Checkpoints,
    cloud::Cloud,
    mapping::Mapping,
};

/// The payload of an invocation, less what is around the records.
const MAX_EVENT: usize = 6_000_000;
const RETRY: Duration = Duration::from_secs(1);

/// What differs between streams and topics.
pub trait Feed: Send + Sync {
    /// What tells it from others, also from an earlier one of its name: checkpoints are of one alone.
    fn source(&self) -> String;

    /// The event of these records, as Lambda's.
    fn event(&self, records: &[Record]) -> String;

    /// Where these records are, as Lambda writes it for what it drops: the name of the member, and its value.
    fn places(&self, records: &[Record]) -> (&'static str, Value);
}

/// A mapping at work.
pub struct Delivery<F> {
    pub feed: F,
    pub mapping: Mapping,
    pub checkpoints: Checkpoints,
    cloud: Cloud,
    region: String,
    /// The last line, which is not repeated.
    printed: Mutex<String>,
}

impl<F: Feed> Delivery<F> {
    /// # Errors
    /// If the mapping cannot work.
    pub fn new(feed: F, mapping: Mapping, region: &str) -> Result<Self, String> {
        Ok(Self {
            cloud: Cloud::of(&mapping, region)?,
            checkpoints: Checkpoints::of(feed.source(), mapping.checkpoints.as_deref())?,
            region: region.to_owned(),
            printed: Mutex::default(),
            mapping,
            feed,
        })
    }

    /// Delivers records, each lane in its order.
    pub async fn deliver(&self, records: Vec<Record>) {
        for records in batches(records, self.mapping.batch_size as usize) {
            let mut batch = Batch::new(records);
            while let Some(records) = batch.next() {
                let outcome = self.cloud.invoke(self.feed.event(records)).await;
                let step = batch.ended(outcome, &self.mapping, SystemTime::now());
                if let Some(warning) = &step.warning {
                    self.say(warning);
                }
                if let Some(dropped) = step.dropped {
                    self.drop(&dropped).await;
                }
                // Behind what is dropped: a poller that ends in between drops it again.
                let done = step.done.iter().map(|record| (&*record.lane, &*record.place));
                if let Err(why) = self.checkpoints.pass(done) {
                    self.say(&why);
                }
                time::sleep(step.wait).await;
            }
        }
    }

    /// Prints a line for the function, unless it is the last one again.
    pub fn say(&self, line: &str) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if *printed != line {
            println!("[{}] {line}", self.mapping.function);
            line.clone_into(&mut printed);
        }
    }

    async fn drop(&self, dropped: &Dropped) {
        let letter = self.letter(dropped).to_string();
        while let Err(why) = self.cloud.send(letter.clone()).await {
            self.say(&why);
            time::sleep(RETRY).await;
        }
        let place = if self.mapping.on_failure.is_some() {
            "their place is in the queue"
        } else {
            "there is no OnFailure"
        };
        self.say(&format!("{} records are dropped ({}): {place}", dropped.records.len(), dropped.condition));
    }

    fn letter(&self, dropped: &Dropped) -> Value {
        let (member, places) = self.feed.places(&dropped.records);
        let function = &self.mapping.function;
        let mut letter = json!({
            "requestContext": {
                "requestId": Uuid::new_v4().to_string(),
                "functionArn": format!("arn:aws:lambda:{}:123456789012:function:{function}", self.region),
                "condition": dropped.condition,
                "approximateInvokeCount": dropped.invocations,
            },
            "responseContext": {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": dropped.is_error.then_some("Unhandled"),
            },
            "version": "1.0",
            "timestamp": iso(SystemTime::now()),
        });
        letter[member] = places;
        letter
    }
}

/// A time as Lambda writes it.
pub fn iso(time: SystemTime) -> String {
    DateTime::from(time).fmt(Format::DateTime).unwrap_or_default()
}

/// Batches of at most so many records, which an invocation can carry.
fn batches(records: Vec<Record>, most: usize) -> Vec<Vec<Record>> {
    let (mut batches, mut bytes) = (Vec::<Vec<Record>>::new(), 0);
    for record in records {
        bytes += record.event.len() + 1;
        match batches.last_mut() {
            Some(batch) if batch.len() < most && bytes <= MAX_EVENT => batch.push(record),
            _ => {
                bytes = record.event.len() + 1;
                batches.push(vec![record]);
            }
        }
    }
    batches
}
