//! How a story is printed: each call, how it ends, and what is left at the end.

use std::fmt;

use super::{
    answers::{GivesUp, Received},
    call::Call,
    shelf::Shelf,
    universe::Universe,
};

/// What is left at the end.
pub fn end(all: &Universe) -> String {
    let kept = |shelf: &Shelf| {
        let record = shelf.record().map_or("no record".to_owned(), |record| {
            let reported =
                record.reported.map_or(String::new(), |reported| format!(", reported {}", reported.name()));
            let answer = shelf.answer().map_or(String::new(), |answer| format!(", {:?}", answer.head));
            format!("the record is {}{answer}{reported}", record.state.name())
        });
        let (published, delivered) = (shelf.outbox.published.len(), shelf.outbox.delivered.len());
        let messages = match published {
            0 => String::new(),
            _ => format!(", {published} messages published, {delivered} delivered"),
        };
        let request = if shelf.request().is_some() { ", its request is kept" } else { "" };
        format!("{record}; {} effects, {} rows{messages}{request}", shelf.effects.len(), shelf.rows)
    };
    let kept: Vec<_> = all.shelves.iter().map(kept).collect();
    let (waiting, dead) = (all.input.messages.len(), usize::from(all.dead_letters) + all.input.dead.len());
    format!("at the end: {}; {waiting} messages wait, {dead} dead letters", kept.join("; "))
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("begins"),
            Self::Handler => f.write_str("begins its handler"),
            Self::Check => f.write_str("reads whether to accept the request"),
            Self::Effect(_) => f.write_str("asks the provider for the effect"),
            Self::Write(seen, record, with) => {
                let (verb, state) = (if seen.is_some() { "swaps" } else { "inserts" }, record.state.name());
                let with = if with.is_empty() { "" } else { " with its rows" };
                write!(f, "{verb} the record: {state}{with}")
            }
            Self::Load(_) => f.write_str("loads the record"),
            Self::KeepBody(..) => f.write_str("stores a body"),
            Self::LoadBody(..) => f.write_str("loads a body"),
            Self::DeleteBody(..) => f.write_str("deletes the request"),
            Self::Undelivered(_) => f.write_str("reads the messages that are not delivered"),
            Self::Remove(message) => write!(f, "removes message {}", message.sequence),
            Self::Scan(_) => f.write_str("scans the table"),
            Self::Wake(..) => f.write_str("asks for a delivery"),
            Self::Deliver(message) => write!(f, "delivers message {}: {}", message.sequence, message.body),
            Self::Due(_) => f.write_str("reads which questions are due"),
            Self::Send(source, ..) => write!(f, "sends a message to {source:?}"),
            Self::Ask(_) => f.write_str("asks the provider what became of it"),
            Self::Hide(hidden) => {
                f.write_str("hides")?;
                hidden.iter().try_for_each(|(receipt, time)| write!(f, " {receipt} for {} s", time.as_secs()))
            }
            Self::Bury(..) => f.write_str("sends its message to the dead letters"),
            Self::EndBatch(done) => {
                f.write_str("ends its batch, done:")?;
                done.iter().try_for_each(|receipt| write!(f, " {receipt}"))
            }
            Self::EndRecords(_, Some(again)) => write!(f, "answers: the checkpoint goes to {again}"),
            Self::EndRecords(..) => f.write_str("answers: the checkpoint goes behind its batch"),
            Self::Acknowledge(_) => f.write_str("acknowledges its message"),
            Self::Sleep(_) => f.write_str("waits"),
        }
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(status, number) => write!(f, "{status}, answer {number}"),
            Self::Omitted(status) => write!(f, "{status}, without its body"),
            Self::Accepted => f.write_str("202: it is accepted, or in flight"),
            Self::Again => f.write_str("no answer: it should ask again"),
            Self::GivesUp(GivesUp::TooOld) => f.write_str("400: its key is too old"),
            Self::GivesUp(GivesUp::Reused) => f.write_str("422: its key was used for another request"),
            Self::GivesUp(GivesUp::NotBegun) => {
                f.write_str("422: its request is invalid, and its key is free")
            }
        }
    }
}
