//! Which records this process has parked.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

/// How many of them are remembered: those of the longest batch.
const MOST: usize = 10_000;

/// The records that this process has parked, by where they are. While a record in front of them must come again, so do they. Then they are neither run, nor
/// parked once more. Another process does not know them: it parks them once more, if that is what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    all: HashSet<Vec<String>>,
    in_order: VecDeque<Vec<String>>,
}

impl Parked {
    pub(super) fn has(&self, place: Option<&Vec<String>>) -> bool {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.is_some_and(|place| remembered.all.contains(place))
    }

    pub(super) fn add(&self, place: Option<&Vec<String>>) {
        let Some(place) = place else { return };
        let Remembered { all, in_order } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.insert(place.clone()) {
            in_order.push_back(place.clone());
        }
        if in_order.len() > MOST
            && let Some(oldest) = in_order.pop_front()
        {
            all.remove(&oldest);
        }
    }
}
