//! What Lambda invokes a function with directly: one event, by SNS, EventBridge, S3, or an asynchronous call.

use lambda_runtime::Error;
use serde_json::value::RawValue;

use super::{
    data::Room,
    received::{Answers, Has, Received},
    shard::Format,
};
use crate::{
    event::Message,
    lambda::trigger::{Event, ItemId},
};

pub(super) struct Invocation;

impl Format for Invocation {
    const SYSTEM: &str = "aws_lambda";
    const NOUN: &str = "function";
    const HAS: Has = Has::NOTHING;

    /// Lambda reads no answer. It repeats what fails.
    fn answers(&self) -> Answers {
        Answers::Whole
    }

    fn records(&self, event: &Event) -> Result<Vec<Box<RawValue>>, Error> {
        Ok(vec![event.whole()])
    }

    fn read(&self, raw: Box<RawValue>, _: &str, _: bool, _: &mut Room) -> Received {
        Received {
            message: Message { body: raw.get().to_owned(), receives: 1, ..Message::default() },
            receipt: None,
            item: None,
            foreign: None,
            unusable: None,
            lane: None,
            sent_at: None,
            raw: Some(raw),
        }
    }

    fn alone(&self, raw: &str, _: Option<&ItemId>) -> String {
        raw.to_owned()
    }
}
