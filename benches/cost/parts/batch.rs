//! A queue's consumer.

use std::rc::Rc;

use lambda_idempotency::store::Store;

use super::{Guarded, Ran};
use crate::{consumers, messages::Source, meter::spent};

/// How many messages a batch has: as many as Lambda takes from a queue by default.
pub const MESSAGES: u64 = 10;

pub fn deliver(store: impl Store) -> Guarded {
    let consumer = Rc::new(consumers::guarded::<consumers::Order>(store, Source::Queue));
    Box::new(move |number| {
        let consumer = consumer.clone();
        let event = Source::Queue.event(number * MESSAGES..(number + 1) * MESSAGES);
        Box::pin(async move {
            let ran = consumers::runs();
            let ((), spent) = spent(consumers::deliver(&*consumer, &event)).await;
            Ran { spent, is_replay: consumers::runs() == ran }
        })
    })
}
