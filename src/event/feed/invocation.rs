//! What Lambda invokes a function with directly: one event, by SNS, EventBridge, S3, or an asynchronous call.

use std::borrow::Cow;

use lambda_runtime::Error;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    data::{self, Room},
    received::{Answers, Has, Received},
    shard::Format,
};
use crate::{
    event::Message,
    lambda::trigger::{Event, ItemId},
};

pub(super) struct Invocation;

/// Of CloudWatch Logs (<https://docs.aws.amazon.com/lambda/latest/dg/services-cloudwatchlogs.html>).
#[derive(Deserialize)]
struct Packed<'a> {
    #[serde(borrow)]
    awslogs: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

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

    /// What CloudWatch Logs invokes it with is unpacked.
    fn read(&self, raw: Box<RawValue>, _: &str, _: bool, room: &mut Room) -> Received {
        let body = match serde_json::from_str::<Packed<'_>>(raw.get()) {
            Ok(packed) => data::compressed(&packed.awslogs.data, room),
            Err(_) => Ok(raw.get().to_owned()),
        };
        Received {
            unusable: body.as_ref().err().cloned(),
            message: Message { body: body.unwrap_or_default(), receives: 1, ..Message::default() },
            receipt: None,
            item: None,
            foreign: None,
            lane: None,
            sent_at: None,
            raw: Some(raw),
        }
    }

    fn alone(&self, raw: &str, _: Option<&ItemId>) -> String {
        raw.to_owned()
    }

    fn brings_parked(&self, _: &Event) -> bool {
        false
    }

    /// What is acknowledged is nowhere else. If its letter is too long, the on-failure destination gets it.
    fn is_kept(&self) -> bool {
        false
    }
}
