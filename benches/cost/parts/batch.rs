//! A queue's consumer.

use std::rc::Rc;

use lambda_idempotency::store::Store;

use super::{Guarded, Ran};
use crate::{consumers, messages, meter::spent};

/// How many messages a batch has: as many as Lambda takes from a queue by default.
pub const MESSAGES: u64 = 10;

pub fn deliver(store: impl Store) -> Guarded {
    let consumer = Rc::new(consumers::guarded(store));
    Box::new(move |number| {
        let consumer = consumer.clone();
        let event = messages::event(number * MESSAGES..(number + 1) * MESSAGES);
        Box::pin(async move {
            let ran = consumers::runs();
            let ((), spent) = spent(consumers::deliver(&*consumer, &event)).await;
            Ran { spent, is_replay: consumers::runs() == ran }
        })
    })
}
