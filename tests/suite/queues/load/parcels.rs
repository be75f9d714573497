//! The messages of the load, and what must become of each.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use lambda_idempotency::{
    async_trait,
    reconcile::{Finding, Question, Reconciler},
    record::Answer,
};
use serde::{Deserialize, Serialize};

use crate::support::{BoxError, random::Random, sqs::NewMessage};

/// Of three messages, one is sent twice.
const SENT_TWICE: usize = 3;

/// How long a group is, about, if there are few.
const GROUP: usize = 5;
const MAX_GROUPS: usize = 500;

/// What the function does with a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Does {
    Ship,
    /// Nothing in its first execution. Then it ships.
    ShipLater,
    /// It fails in its first execution, and nobody knows that it did nothing. Then it ships.
    FailAndShip,
    /// It ships, and fails.
    ShipAndFail,
    Refuse,
    /// Nothing, each time.
    Nothing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parcel {
    pub id: String,
    pub does: Does,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Why a message is expected in the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dead {
    NoKey,
    Mismatch,
    Refused,
    Tried,
    /// None of these.
    Other,
}

pub const REFUSED: &str = "no such address";
pub const NOTHING: &str = "no connection";

impl Dead {
    pub fn of(reason: &str) -> Self {
        match reason {
            REFUSED => Self::Refused,
            "the key was used for another input" => Self::Mismatch,
            _ if reason.starts_with("the message's body is not JSON") => Self::NoKey,
            // The second one is of a process that does not know that another one has parked it.
            tried
                if [NOTHING, "its tries were over"]
                    .iter()
                    .any(|why| tried.ends_with(&format!(" times: {why}"))) =>
            {
                Self::Tried
            }
            _ => Self::Other,
        }
    }
}

/// Dead letters: their bodies, with the reasons that each came with.
pub type DeadLetters = BTreeMap<String, BTreeSet<Dead>>;

/// Messages of one queue, and what must become of them.
#[derive(Default)]
pub struct Load {
    /// As they are sent, one in three twice.
    pub messages: Vec<NewMessage>,
    /// The parcels that are shipped, by group, in their order. Those of a standard queue are one group, without an order.
    pub shipped: BTreeMap<String, Vec<String>>,
    pub dead: DeadLetters,
    /// How many keys are completed: shipped or refused.
    pub completed: usize,
    /// How many messages there are without those that are sent again.
    pub number: usize,
}

impl Load {
    /// Messages of a FIFO queue, in 500 groups at most.
    pub fn fifo(number: usize, random: &mut Random) -> Self {
        let groups = (number / GROUP).clamp(1, MAX_GROUPS);
        Self::of(number, random, |random| Some(format!("g{}", random.below(groups))))
    }

    pub fn standard(number: usize, random: &mut Random) -> Self {
        Self::of(number, random, |_| None)
    }

    fn of(number: usize, random: &mut Random, group: impl Fn(&mut Random) -> Option<String>) -> Self {
        let mut load = Self { number, ..Self::default() };
        // Shipped parcels of a group, whose keys another message can take.
        let mut keys: HashMap<String, String> = HashMap::new();
        let mut placed = Vec::new();
        for place in 0..number {
            let group = group(random);
            let name = group.clone().unwrap_or_else(|| "standard".to_owned());
            let id = format!("{name}-p{place}");
            let other = keys.get(&name).filter(|_| group.is_some());
            let body = match (random.below(100), other) {
                (0, _) => load.dies(format!("no parcel {id}"), Dead::NoKey),
                // Only behind the other one, so only in a group.
                (1, Some(key)) => {
                    let parcel = Parcel { id: key.clone(), does: Does::Ship, to: Some(id) };
                    load.dies(json(&parcel), Dead::Mismatch)
                }
                (kind, _) => {
                    let does = match kind {
                        2 => Does::Nothing,
                        3..=5 => Does::Refuse,
                        6..=8 => Does::FailAndShip,
                        9..=11 => Does::ShipAndFail,
                        12..=14 => Does::ShipLater,
                        _ => Does::Ship,
                    };
                    let body = json(&Parcel { id: id.clone(), does, to: None });
                    match does {
                        Does::Nothing => load.dies(body, Dead::Tried),
                        Does::Refuse => {
                            load.completed += 1;
                            load.dies(body, Dead::Refused)
                        }
                        _ => {
                            load.completed += 1;
                            load.shipped.entry(name.clone()).or_default().push(id.clone());
                            if does == Does::Ship {
                                keys.insert(name, id);
                            }
                            body
                        }
                    }
                }
            };
            let message = NewMessage { group, ..NewMessage::new(body) };
            if place % SENT_TWICE == 0 {
                // Anywhere behind the first one.
                placed.push((place + random.below(number - place), 1, message.clone()));
            }
            placed.push((place, 0, message));
        }
        placed.sort_by_key(|(place, again, _)| (*place, *again));
        load.messages = placed.into_iter().map(|(_, _, message)| message).collect();
        load
    }

    /// A message that must go to the dead letters.
    fn dies(&mut self, body: String, why: Dead) -> String {
        self.dead.insert(body.clone(), BTreeSet::from([why]));
        body
    }
}

fn json(parcel: &Parcel) -> String {
    serde_json::to_string(parcel).expect("a parcel is JSON")
}

/// A carrier that honours no key: each call is an effect. Clones share its ledger.
#[derive(Clone, Default)]
pub struct Carrier(Arc<Mutex<Vec<String>>>);

impl Carrier {
    pub fn ship(&self, id: &str) {
        self.0.lock().unwrap().push(id.to_owned());
    }

    /// The parcels that it shipped, by group, in their order.
    pub fn shipped(&self) -> BTreeMap<String, Vec<String>> {
        let mut shipped: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for id in &*self.0.lock().unwrap() {
            let group = id.split_once('-').expect("an id names its group").0;
            shipped.entry(group.to_owned()).or_default().push(id.clone());
        }
        shipped
    }

    /// How many calls there were.
    pub fn calls(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[async_trait]
impl Reconciler for Carrier {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        let key = question.record_key().idempotency_key().as_str();
        let is_shipped = self.0.lock().unwrap().iter().any(|id| id == key);
        Ok(if is_shipped { Finding::Executed(Answer::payload(&key)?) } else { Finding::NotFound })
    }
}
