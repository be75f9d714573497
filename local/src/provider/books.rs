//! The provider's ledger: charges in the order in which they were made, and the decision for each idempotency key.

use super::cards::Card;
use aws_smithy_types::{DateTime, date_time::Format};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    time::SystemTime,
};
use uuid::Uuid;

const MAX_AMOUNT: u64 = 99_999_999;
const DAY: u64 = 86_400_000;

#[derive(Default)]
pub struct Books {
    charges: Vec<Charge>,
    /// The index of each charge, by its id.
    places: HashMap<String, usize>,
    decisions: HashMap<String, Decision>,
    refunds: Vec<Refund>,
    /// Webhooks that are not acknowledged, by the number of their decision.
    held: BTreeMap<u64, Webhook>,
    decided: u64,
}

pub struct Decision {
    pub order: Order,
    pub verdict: Verdict,
}

#[derive(Clone)]
pub enum Verdict {
    Charged(Charge),
    Declined,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    amount_cents: u64,
    currency: String,
    pub source: String,
    tenant: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// A charge to give back.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundOrder {
    charge_id: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refund {
    pub id: String,
    key: String,
    charge_id: String,
    amount_cents: u64,
    currency: String,
    tenant: String,
    /// Milliseconds since 1970.
    created_at: u64,
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    pub id: String,
    pub key: String,
    pub amount_cents: u64,
    pub currency: String,
    pub source: String,
    tenant: String,
    /// Milliseconds since 1970.
    pub created_at: u64,
    metadata: BTreeMap<String, String>,
}

/// The event about a decision. Its id is the same each time it is sent.
#[derive(Clone)]
pub struct Webhook {
    pub id: u64,
    pub body: String,
}

impl Books {
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    pub fn decision(&self, key: &str) -> Option<&Decision> {
        self.decisions.get(key)
    }

    /// The earlier verdict for the key, if there is one. The inner `None` means that it was for another order.
    pub fn earlier(&self, key: &str, order: &Order) -> Option<Option<Verdict>> {
        let decision = self.decisions.get(key)?;
        Some(decision.order.is_same(order).then(|| decision.verdict.clone()))
    }

    /// Decides once for each key: a second request gets the verdict of the first, even if that was slow.
    pub fn settle(&mut self, key: String, order: Order, card: Card) -> Option<Verdict> {
        if let Some(earlier) = self.earlier(&key, &order) {
            return earlier;
        }
        let verdict = match card {
            Card::Declined => Verdict::Declined,
            _ => Verdict::Charged(Charge::new(&key, &order, self.now())),
        };
        if let Verdict::Charged(charge) = &verdict {
            self.places.insert(charge.id.clone(), self.charges.len());
            self.charges.push(charge.clone());
        }
        self.hold(&event(&key, &order, &verdict));
        self.decisions.insert(key, Decision { order, verdict: verdict.clone() });
        Some(verdict)
    }

    pub fn refunds(&self) -> &[Refund] {
        &self.refunds
    }

    pub fn refund(&self, key: &str) -> Option<&Refund> {
        self.refunds.iter().find(|refund| refund.key == key)
    }

    /// Gives a charge back, once for each key. `None` if there is no such charge, or if the key was used for another one.
    pub fn give_back(&mut self, key: String, order: RefundOrder) -> Option<Refund> {
        if let Some(earlier) = self.refund(&key) {
            return Some(earlier.clone()).filter(|earlier| earlier.charge_id == order.charge_id);
        }
        let charge = &self.charges[*self.places.get(&order.charge_id)?];
        let refund = Refund {
            id: format!("re_{}", Uuid::new_v4().simple()),
            key,
            charge_id: order.charge_id,
            amount_cents: charge.amount_cents,
            currency: charge.currency.clone(),
            tenant: charge.tenant.clone(),
            created_at: self.now(),
            metadata: order.metadata,
        };
        self.hold(&json!({
            "id": format!("evt_{}", Uuid::new_v4().simple()),
            "type": "refund.succeeded",
            "key": refund.key,
            "refund": refund,
            "metadata": refund.metadata,
        }));
        self.refunds.push(refund.clone());
        Some(refund)
    }

    fn hold(&mut self, event: &Value) {
        self.decided += 1;
        self.held.insert(self.decided, Webhook { id: self.decided, body: event.to_string() });
    }

    /// The charges of a UTC day that come after the charge `after`, and whether there are more. `None` if there is no such day
    /// or charge.
    pub fn page(&self, day: Option<&str>, after: Option<&str>, limit: usize) -> Option<(&[Charge], bool)> {
        let after = after.map(|after| self.places.get(after).copied());
        page_of(&self.charges, |charge| charge.created_at, day, after, limit)
    }

    /// The same of refunds.
    pub fn page_of_refunds(
        &self,
        day: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Option<(&[Refund], bool)> {
        let after = after.map(|after| self.refunds.iter().position(|refund| refund.id == after));
        page_of(&self.refunds, |refund| refund.created_at, day, after, limit)
    }

    pub fn held(&self) -> Vec<Webhook> {
        self.held.values().cloned().collect()
    }

    /// Whether it was held until now.
    pub fn release(&mut self, webhook: &u64) -> bool {
        self.held.remove(webhook).is_some()
    }

    /// Never earlier than the last charge or refund, even if the clock goes back: pages are cut by time.
    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let charged = self.charges.last().map_or(0, |charge| charge.created_at);
        let refunded = self.refunds.last().map_or(0, |refund| refund.created_at);
        charged.max(refunded).max(now.as_millis() as u64)
    }
}

impl Order {
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..=MAX_AMOUNT).contains(&self.amount_cents) {
            return Err("invalid_amount");
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err("invalid_currency");
        }
        if self.tenant.is_empty() {
            return Err("invalid_tenant");
        }
        Ok(())
    }

    /// Whether the parameters are the same. Metadata does not count.
    fn is_same(&self, other: &Self) -> bool {
        let parameters = |order: &Self| {
            (order.amount_cents, order.currency.clone(), order.source.clone(), order.tenant.clone())
        };
        parameters(self) == parameters(other)
    }
}

impl Charge {
    fn new(key: &str, order: &Order, created_at: u64) -> Self {
        Self {
            id: format!("ch_{}", Uuid::new_v4().simple()),
            key: key.to_owned(),
            amount_cents: order.amount_cents,
            currency: order.currency.clone(),
            source: order.source.clone(),
            tenant: order.tenant.clone(),
            created_at,
            metadata: order.metadata.clone(),
        }
    }
}

/// The entries of a UTC day, in the order in which they were made, from the one behind the place `after`, and whether there are more. `None` if
/// there is no such day or place.
fn page_of<'a, T>(
    all: &'a [T],
    made_at: impl Fn(&T) -> u64,
    day: Option<&str>,
    after: Option<Option<usize>>,
    limit: usize,
) -> Option<(&'a [T], bool)> {
    let (mut start, mut end) = (0, all.len());
    if let Some(day) = day {
        let midnight = DateTime::from_str(&format!("{day}T00:00:00Z"), Format::DateTime).ok()?;
        let midnight = u64::try_from(midnight.to_millis().ok()?).ok()?;
        start = all.partition_point(|entry| made_at(entry) < midnight);
        end = all.partition_point(|entry| made_at(entry) < midnight + DAY);
    }
    if let Some(after) = after {
        start = start.max(after? + 1);
    }
    let page = all.get(start..end).unwrap_or_default();
    Some((&page[..limit.min(page.len())], page.len() > limit))
}

fn event(key: &str, order: &Order, verdict: &Verdict) -> Value {
    let (kind, charge) = match verdict {
        Verdict::Charged(charge) => ("charge.succeeded", Some(charge)),
        Verdict::Declined => ("charge.declined", None),
    };
    json!({
        "id": format!("evt_{}", Uuid::new_v4().simple()),
        "type": kind,
        "key": key,
        "charge": charge,
        "metadata": order.metadata,
    })
}
