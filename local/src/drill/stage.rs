//! Where a drill happens: the running cloud, and the minutes of its metrics.
//!
//! A minute here is no minute of a clock. In a *played* minute, the functions run: it lasts as long as they need, and has what they wrote
//! since the last one, and the numbers of the queues. A *repeated* minute has the numbers of the last played one, because nothing has
//! changed. Schedules run by these minutes. While a drill waits for something to happen, the minute does not end.

use super::watched::Watched;
use crate::{
    alarms::{Metric, Recorded, aws},
    cloud::Cloud,
    functions::Function,
    mapping::Failure,
    schedules::Scheduled,
    template::Queue,
};
use aws_sdk_sqs::types::QueueAttributeName;
use lambda_idempotency::telemetry::error_chain;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{self, Instant};

const DAY: u64 = 24 * 60;
/// Minutes before the first one. No alarm looks back further.
const BEFORE: u64 = 100 * DAY;
/// How long what happens in the cloud may take.
pub const PATIENCE: Duration = Duration::from_secs(61);
/// For what a function has written to come out of its pipe.
const PIPE: Duration = Duration::from_millis(10);
pub const PAUSE: Duration = Duration::from_millis(100);

const VISIBLE: &str = "ApproximateNumberOfMessagesVisible";
const IN_FLIGHT: &str = "ApproximateNumberOfMessagesNotVisible";
const AGE: &str = "ApproximateAgeOfOldestMessage";

type Values = Vec<(Metric, f64)>;

/// The cloud, and what was recorded of it.
pub struct Stage {
    pub cloud: Arc<Cloud>,
    pub minute: u64,
    pub watched: Vec<Watched>,
    recorded: Recorded,
    /// What the minute has until now.
    begun: Values,
    /// What each minute has while nothing changes.
    steady: Values,
    /// Since when each queue has not been empty.
    filled: BTreeMap<String, u64>,
    /// The jobs that no schedule begins.
    pub off: BTreeSet<&'static str>,
    /// What functions have written of each metric.
    written: BTreeMap<Metric, Written>,
}

#[derive(Clone, Copy, Default)]
struct Written {
    sum: f64,
    last: f64,
}

impl Stage {
    pub fn new(cloud: Arc<Cloud>) -> Self {
        cloud.metrics.latest();
        Self {
            cloud,
            minute: BEFORE,
            watched: Vec::new(),
            recorded: Recorded::default(),
            begun: Vec::new(),
            steady: Vec::new(),
            filled: BTreeMap::new(),
            off: BTreeSet::new(),
            written: BTreeMap::new(),
        }
    }

    /// Plays a minute.
    pub async fn play(&mut self) -> Result<(), String> {
        if self.is_midnight() {
            self.run_jobs(|period| period.is_none()).await;
        }
        let mut steady = self.run().await;
        steady.extend(self.queues().await?);
        let mut values = std::mem::take(&mut self.begun);
        values.extend(steady.iter().cloned());
        self.steady = steady;
        self.record(&values)
    }

    /// Waits a moment, within the minute.
    pub async fn wait(&mut self) {
        time::sleep(PAUSE).await;
        let written = self.run().await;
        self.begun.extend(written);
    }

    /// Runs the jobs of each minute, and returns what they wrote.
    async fn run(&mut self) -> Values {
        let written = self.latest();
        self.begun.extend(written);
        self.run_jobs(|period| period.is_some()).await;
        self.latest()
    }

    /// Repeats the last minute so often, and plays those in which daily jobs run.
    pub async fn repeat(&mut self, minutes: u64) -> Result<(), String> {
        for _ in 0..minutes {
            if self.is_midnight() {
                self.play().await?;
            } else {
                self.record(&self.steady.clone())?;
            }
        }
        Ok(())
    }

    /// Lets so many minutes pass in which nothing is recorded, up to the next daily job at most.
    pub async fn skip(&mut self, minutes: u64) -> Result<(), String> {
        for _ in 0..minutes {
            if self.is_midnight() {
                return self.play().await;
            }
            self.record(&Values::new())?;
        }
        Ok(())
    }

    /// Waits until this is so, of a metric that functions write.
    async fn until(&mut self, metric: &str, is_so: impl Fn(Written) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !is_so(self.written(metric)) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("the functions do not write {metric}"));
            }
            self.wait().await;
        }
        Ok(())
    }

    /// Waits until functions have counted so many, from the beginning.
    pub async fn until_counted(&mut self, metric: &str, count: f64) -> Result<(), String> {
        self.until(metric, |written| written.sum >= count).await
    }

    /// What functions have counted until now.
    pub fn counted(&self, metric: &str) -> f64 {
        self.written(metric).sum
    }

    /// Waits until functions have last written such a value.
    pub async fn until_value(&mut self, metric: &str, value: f64) -> Result<(), String> {
        self.until(metric, |written| written.last >= value).await
    }

    /// Waits until this queue has messages, even delayed ones, or none that can be received.
    pub async fn until_queue(&mut self, name: &str, is_empty: bool) -> Result<(), String> {
        match is_empty {
            true => self.until_numbers(name, |[visible, in_flight, _]| visible + in_flight == 0.0).await,
            false => self.until_more(name, 0.0).await,
        }
    }

    /// Waits until this queue has more messages than that.
    pub async fn until_more(&mut self, name: &str, than: f64) -> Result<(), String> {
        self.until_numbers(name, |numbers| numbers.iter().sum::<f64>() > than).await
    }

    /// Waits until a message of this queue can be received.
    pub async fn until_visible(&mut self, name: &str) -> Result<(), String> {
        self.until_numbers(name, |[visible, ..]| visible > 0.0).await
    }

    /// Waits until the messages of this queue, visible, in flight and delayed, are so many.
    async fn until_numbers(&mut self, name: &str, is_so: impl Fn([f64; 3]) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let numbers = self.messages(name).await?;
            if is_so(numbers) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let [visible, in_flight, delayed] = numbers;
                return Err(format!(
                    "the queue {name} still has {visible} messages, {in_flight} in flight, {delayed} delayed"
                ));
            }
            self.wait().await;
        }
    }

    /// How many messages a queue has: visible, in flight and delayed.
    pub async fn messages(&self, name: &str) -> Result<[f64; 3], String> {
        numbers(&self.cloud, &self.queue(name)?.url).await
    }

    /// The queue of this name.
    pub fn queue(&self, name: &str) -> Result<&Queue, String> {
        let found = self.cloud.queues.all.iter().find(|known| known.name == name);
        found.ok_or_else(|| format!("there is no queue {name}"))
    }

    /// Each set of dimensions has the same values, or a part of them.
    fn written(&self, metric: &str) -> Written {
        let sets = self.written.iter().filter(|(known, _)| known.name == metric).map(|(_, written)| *written);
        sets.max_by(|one, other| one.sum.total_cmp(&other.sum)).unwrap_or_default()
    }

    fn is_midnight(&self) -> bool {
        self.minute.is_multiple_of(DAY)
    }

    fn latest(&mut self) -> Values {
        let latest = self.cloud.metrics.latest();
        for (metric, value) in latest.iter().filter(|(metric, _)| !metric.namespace.starts_with("AWS/")) {
            let written = self.written.entry(metric.clone()).or_default();
            written.sum += value;
            written.last = *value;
        }
        latest
    }

    /// Runs the jobs of the schedules of this kind, unless they are off.
    async fn run_jobs(&self, is_due: impl Fn(Option<Duration>) -> bool) {
        for schedule in self.cloud.stack.schedules.iter().filter(|schedule| is_due(schedule.period)) {
            let job = schedule.input["job"].as_str().unwrap_or_default();
            let declared = self.cloud.stack.functions.iter().find(|known| known.name == schedule.function);
            let (Some(declared), false) = (declared, self.off.contains(job)) else { continue };
            let Ok(function) = self.function(&schedule.function) else { continue };
            let failed_runs = self.cloud.queues.failed_runs(declared);
            Scheduled { function: function.clone(), input: schedule.input.clone(), failed_runs }.once().await;
        }
        time::sleep(PIPE).await;
    }

    /// Runs the job of a function now.
    pub async fn job(&mut self, function: &str, job: &str) -> Result<(), String> {
        let ran = self.invoke(function, &json!({ "job": job })).await?;
        ran.map_err(|failure| format!("the {job} of {function}: {failure}"))?;
        self.play().await
    }

    /// Invokes a function of this name, and waits for its answer.
    pub async fn invoke(&self, name: &str, event: &Value) -> Result<Result<Value, Failure>, String> {
        let answer = Failure::of(self.function(name)?.invoke(event.to_string().into()).await);
        Ok(answer.map(|answer| serde_json::from_slice(&answer).unwrap_or_default()))
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Result<&Arc<Function>, String> {
        let function = self.cloud.functions.iter().find(|function| function.definition.name == name);
        function.ok_or_else(|| format!("there is no function {name}"))
    }

    /// The numbers of the queues, as SQS reports them. Messages in flight only if there are any.
    async fn queues(&mut self) -> Result<Values, String> {
        let mut values = Values::new();
        for queue in &self.cloud.queues.all {
            let [visible, in_flight, _] = numbers(&self.cloud, &queue.url).await?;
            values.push((aws::of_queue(&queue.full_name, VISIBLE), visible));
            if in_flight > 0.0 {
                values.push((aws::of_queue(&queue.full_name, IN_FLIGHT), in_flight));
            }
            // The delays of messages are by the clock.
            match visible + in_flight > 0.0 {
                true => *self.filled.entry(queue.full_name.clone()).or_insert(self.minute),
                false => self.filled.remove(&queue.full_name).unwrap_or_default(),
            };
        }
        Ok(values)
    }

    fn record(&mut self, values: &Values) -> Result<(), String> {
        for (metric, value) in values {
            self.recorded.add(metric, self.minute, *value);
        }
        for (queue, since) in &self.filled {
            let seconds = 60 * (self.minute - since);
            self.recorded.add(&aws::of_queue(queue, AGE), self.minute, seconds as f64);
        }
        self.minute += 1;
        for watched in &mut self.watched {
            if watched.is_due(self.minute) {
                watched.evaluate(&self.recorded, self.minute)?;
            }
        }
        Ok(())
    }
}

/// The messages of a queue that are visible, in flight and delayed.
async fn numbers(cloud: &Cloud, url: &str) -> Result<[f64; 3], String> {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ];
    let get = cloud.queues.client.get_queue_attributes().queue_url(url);
    let get = get.set_attribute_names(Some(names.to_vec()));
    let got = get.send().await.map_err(|error| error_chain(&error).to_string())?;
    let numbers = got.attributes.unwrap_or_default();
    Ok(names.map(|name| numbers.get(&name).and_then(|number| number.parse().ok()).unwrap_or_default()))
}
