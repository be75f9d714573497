//! The orders of a test.

use std::{collections::HashSet, env};

use serde_json::json;

/// The keys that records have.
const CUSTOMERS: usize = 20;

/// How many records a test publishes: `RECORDS=20000` by command.
pub fn records() -> usize {
    env::var("RECORDS").map_or(1_500, |count| count.parse().expect("RECORDS is a number"))
}

/// An order of a customer, as it is published.
#[derive(Clone, Debug)]
pub struct Order {
    pub customer: String,
    pub id: usize,
}

impl Order {
    pub fn body(&self) -> String {
        json!({ "id": self.id }).to_string()
    }
}

/// The customer of an order.
pub fn customer(id: usize) -> String {
    format!("c-{}", id % CUSTOMERS)
}

/// All publications, by customer, in their order. Of ten, three are of an order that was published before: at once, or with others in between.
pub fn orders(count: usize) -> Vec<Vec<Order>> {
    let mut customers: Vec<Vec<Order>> = vec![Vec::new(); CUSTOMERS];
    for number in 0..count {
        let orders = &mut customers[number % CUSTOMERS];
        let nth = orders.len();
        let back = match nth % 10 {
            3 | 6 => 1,
            9 => 8,
            _ => 0,
        };
        let id = if back > 0 { orders[nth - back].id } else { number };
        orders.push(Order { customer: customer(number), id });
    }
    customers
}

/// The first half of each customer's publications, and the second.
pub fn halves(orders: &[Vec<Order>]) -> [Vec<Vec<Order>>; 2] {
    let halves = orders.iter().map(|orders| orders.split_at(orders.len() / 2));
    let (first, second): (Vec<_>, Vec<_>) =
        halves.map(|(first, second)| (first.to_vec(), second.to_vec())).unzip();
    [first, second]
}

/// Each order of these publications once, in their order.
pub fn once(orders: &[Order]) -> Vec<usize> {
    let mut known = HashSet::new();
    orders.iter().map(|order| order.id).filter(|id| known.insert(*id)).collect()
}
