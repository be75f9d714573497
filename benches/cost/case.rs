//! What is measured: the rows of the tables.

use bytes::Bytes;

use crate::{
    body::{Answer, PAYMENT, larger},
    parts::Part,
};

/// One row.
#[derive(Clone, Debug)]
pub struct Case {
    pub part: Part,
    /// Whether a call is a retry of what is completed.
    pub is_replay: bool,
    /// The answer's size and kind, if it is not that of a payment.
    answer: Option<Answer>,
}

impl Case {
    pub const fn first(part: Part) -> Self {
        Self { part, is_replay: false, answer: None }
    }

    const fn replay(part: Part) -> Self {
        Self { part, is_replay: true, answer: None }
    }

    pub fn name(&self) -> String {
        let kind = if self.is_replay { ", replay" } else { "" };
        let size = self.answer.iter().map(|answer| format!(", {}", answer.name)).collect::<String>();
        format!("{}{kind}{size}", self.part.name())
    }

    /// The handler's answer.
    pub fn body(&self) -> Bytes {
        self.answer.as_ref().map_or(Bytes::from_static(PAYMENT.as_bytes()), |answer| answer.body.clone())
    }
}

/// The parts with small answers. Each call has fresh keys, unless it is a replay.
pub const SMALL: [Case; 9] = [
    Case::first(Part::Executor),
    Case::first(Part::Function),
    Case::replay(Part::Function),
    Case::first(Part::Layer),
    Case::first(Part::Event),
    Case::replay(Part::Event),
    Case::first(Part::Batch),
    Case::first(Part::Phase),
    Case::first(Part::SingleTransaction),
];

/// The cases that are measured in memory.
pub fn in_memory() -> Vec<Case> {
    let others = [Part::Bounded, Part::Counted, Part::LongBody, Part::KeyInBody, Part::Unguarded];
    SMALL.into_iter().chain(others.map(Case::first)).collect()
}

/// The cases that are measured beside raw calls. Larger answers are compressed, or kept outside of their records.
pub fn on_dynamodb() -> Vec<Case> {
    let larger = larger().into_iter().map(|answer| Case { answer: Some(answer), ..Case::first(Part::Layer) });
    SMALL.into_iter().chain(larger).collect()
}
