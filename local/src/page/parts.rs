//! The parts of the page, as they are now.

use super::{
    outbox,
    record::{self, Field, Shown as Record},
    send, tables, tenants,
};
use crate::{
    cloud::Cloud,
    journal::{Listed, Origin, Sent, Step, Timeline},
    provider,
    status::Figures,
    template::Queue,
};
use askama::Template;
use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::future::join_all;
use std::time::Duration;

/// Charges that are shown.
const CHARGES: usize = 8;
/// The state in which an operator, or the provider, must say what happened.
const UNKNOWN: &str = "unknown";
/// The groups of keys, each with its title.
const GROUPS: [(Origin, &str); 3] =
    [(Origin::Client, ""), (Origin::Message, "Of messages and events"), (Origin::LookUp, "Only looked up")];

/// The page's parts, as HTML, by the ids of their places.
#[derive(Clone, Default, PartialEq)]
pub struct Parts {
    pub keys: String,
    pub timeline: String,
    pub records: String,
    pub routes: String,
    pub tables: String,
    pub outbox: String,
    pub provider: String,
    pub environments: String,
    pub tenants: String,
    pub queues: String,
}

impl Parts {
    /// All parts, with this timeline.
    pub async fn now(cloud: &Cloud, selected: Option<u64>) -> Self {
        let timeline = selected.and_then(|id| cloud.journal.timeline(id));
        let names = timeline.iter().flat_map(Timeline::records).map(str::to_owned).collect::<Vec<_>>();
        let records = record::read(cloud, &names).await;
        let keys = cloud.journal.timelines();
        let keys = Keys::of(&keys, selected);
        let has_provider = cloud.has_provider();
        let environments = cloud.functions.iter().flat_map(|function| function.environments()).collect();
        Self {
            keys: shown(&keys),
            timeline: shown(&Steps { timeline: timeline.as_ref() }),
            records: if timeline.is_some() { shown(&Records { records: &records }) } else { String::new() },
            routes: shown(&Routes { routes: &send::routes(cloud) }),
            tables: tables::part(cloud).await,
            outbox: outbox::part(cloud),
            provider: if has_provider { shown(&Provider::now(cloud)) } else { String::new() },
            environments: shown(&Environments { environments }),
            tenants: tenants::part(cloud).await,
            queues: shown(&Queues::now(cloud).await),
        }
    }

    /// Those that differ from `earlier`.
    pub fn since<'a>(&'a self, earlier: &Self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let before = earlier.all().map(|(_, html)| html.to_owned());
        self.all().into_iter().zip(before).filter(|((_, html), before)| html != before).map(|(part, _)| part)
    }

    fn all(&self) -> [(&'static str, &str); 10] {
        [
            ("keys", &self.keys),
            ("timeline", &self.timeline),
            ("records", &self.records),
            ("routes", &self.routes),
            ("tables", &self.tables),
            ("outbox", &self.outbox),
            ("provider", &self.provider),
            ("environments", &self.environments),
            ("tenants", &self.tenants),
            ("queues", &self.queues),
        ]
    }
}

fn shown(part: &impl Template) -> String {
    part.render().unwrap_or_else(|error| error.to_string())
}

#[derive(Template)]
#[template(path = "keys.html")]
struct Keys<'a> {
    /// Those of clients, of messages, and those that were only looked up.
    groups: Vec<(&'static str, Vec<&'a Listed>)>,
    /// How many have an unknown outcome.
    unknown: usize,
    selected: Option<u64>,
}

impl<'a> Keys<'a> {
    fn of(keys: &'a [Listed], selected: Option<u64>) -> Self {
        let is_unknown = |key: &&Listed| key.states.iter().any(|(_, state)| state == UNKNOWN);
        let group =
            |(origin, name)| (name, keys.iter().filter(|key| key.origin == origin).collect::<Vec<_>>());
        let groups = GROUPS.into_iter().map(group).filter(|(_, keys)| !keys.is_empty());
        Self { groups: groups.collect(), unknown: keys.iter().filter(is_unknown).count(), selected }
    }

    fn is_selected(&self, id: &u64) -> bool {
        self.selected == Some(*id)
    }
}

#[derive(Template)]
#[template(path = "routes.html")]
struct Routes<'a> {
    routes: &'a [Sent],
}

#[derive(Template)]
#[template(path = "timeline.html")]
struct Steps<'a> {
    timeline: Option<&'a Timeline>,
}

impl Steps<'_> {
    /// Seconds since the first step; from and until, if there were several.
    fn since(&self, step: &Step) -> String {
        let first =
            self.timeline.and_then(|timeline| timeline.steps.first()).map_or(step.at, |first| first.at);
        let [at, until] =
            [step.at, step.until].map(|time| Duration::from_millis(time.saturating_sub(first)).as_secs_f64());
        if step.times == 1 { format!("{at:.3}\u{a0}s") } else { format!("{at:.3} to {until:.3}\u{a0}s") }
    }

    /// Capacity units; nothing in place of none.
    fn units(&self, units: &f64) -> String {
        if *units > 0.0 { units.to_string() } else { String::new() }
    }
}

#[derive(Template)]
#[template(path = "records.html")]
struct Records<'a> {
    records: &'a [Record],
}

#[derive(Template)]
#[template(path = "environments.html")]
struct Environments {
    environments: Vec<Figures>,
}

#[derive(Template)]
#[template(path = "provider.html")]
struct Provider {
    condition: String,
    /// What else it can be.
    others: Vec<(&'static str, &'static str)>,
    count: usize,
    charges: Vec<Charge>,
}

struct Charge {
    at: String,
    source: String,
    amount: String,
    key: String,
}

impl Provider {
    fn now(cloud: &Cloud) -> Self {
        let (is_away, delay) = (cloud.provider.is_away(), cloud.provider.slowness.get());
        let condition = match (is_away, delay) {
            (true, _) => "away: it refuses connections".to_owned(),
            (false, Duration::ZERO) => "up".to_owned(),
            (false, delay) => format!("slow: it answers after {} s", delay.as_secs_f64()),
        };
        let all = [("up", "up"), ("slow", "slow: 8 s"), ("away", "away")];
        let now = if is_away {
            "away"
        } else if delay.is_zero() {
            "up"
        } else {
            "slow"
        };
        let (count, charges) = cloud.provider.ledger(CHARGES);
        Self {
            condition,
            others: all.into_iter().filter(|(value, _)| *value != now).collect(),
            count,
            charges: charges.iter().map(Charge::of).collect(),
        }
    }
}

impl Charge {
    fn of(charge: &provider::Charge) -> Self {
        let (cents, at) = (charge.amount_cents, charge.created_at / 1000);
        Self {
            at: format!("{:02}:{:02}:{:02} UTC", at / 3600 % 24, at / 60 % 60, at % 60),
            source: charge.source.clone(),
            amount: format!("{}.{:02} {}", cents / 100, cents % 100, charge.currency),
            key: charge.key.clone(),
        }
    }
}

#[derive(Template)]
#[template(path = "queues.html")]
struct Queues {
    queues: Vec<Numbers>,
}

/// How many messages are in a queue.
struct Numbers {
    name: String,
    is_dead_letters: bool,
    /// Its dead letters can be looked at by HTTP.
    has_dead_letters: bool,
    ready: u64,
    later: u64,
    in_flight: u64,
}

impl Queues {
    async fn now(cloud: &Cloud) -> Self {
        let all = cloud.queues.all.iter();
        Self { queues: join_all(all.map(|queue| Numbers::of(cloud, queue))).await }
    }
}

impl Numbers {
    async fn of(cloud: &Cloud, queue: &Queue) -> Self {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let get = cloud.queues.client.get_queue_attributes().queue_url(&queue.url);
        let answer = get.set_attribute_names(Some(names.to_vec())).send().await;
        let numbers = answer.ok().and_then(|answer| answer.attributes).unwrap_or_default();
        let [ready, later, in_flight] =
            names.map(|name| numbers.get(&name).and_then(|number| number.parse().ok()).unwrap_or_default());
        let dead = cloud.queues.all.iter().filter_map(|other| other.dead_letters.as_ref());
        let is_dead_letters = dead.into_iter().any(|(arn, _)| *arn == queue.arn);
        let has_dead_letters = queue.dead_letters.is_some();
        Self { name: queue.name.clone(), is_dead_letters, has_dead_letters, ready, later, in_flight }
    }

    const fn all(&self) -> u64 {
        self.ready + self.later + self.in_flight
    }
}
