//! What became of a guarded request, for a front around the guard that is not HTTP: an extension of each response of a guard.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{header::CONTENT_TYPE, response::Parts};
use serde::Deserialize;

use super::ProblemType;

/// What became of a guarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) became: Became,
    /// How many executions there were; 0 if it did not run, or if no record counts them.
    pub(crate) attempts: u32,
}

/// What became of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// The response is the operation's answer, and kept.
    Kept,
    /// The request was refused before anything was done.
    NotBegun,
    /// Nothing was done.
    NotExecuted,
    /// Perhaps something was done.
    Perhaps,
    /// The guard answered in the handler's place.
    Problem {
        /// With this problem.
        problem: ProblemType,
        /// The client should wait this long.
        wait: Duration,
        /// How long the lease of the execution in flight still lasts.
        lease_left: Duration,
    },
}

impl From<Became> for Ended {
    /// Without a number of executions.
    fn from(became: Became) -> Self {
        Self { became, attempts: 0 }
    }
}

/// Why a request was refused, for operators: an extension of the response. Nothing that its caller sent is in it.
#[derive(Clone, Debug)]
pub(crate) struct Why(pub(crate) Cow<'static, str>);

impl Why {
    /// The title and the type of a handler's problem (RFC 9457). They are the same for each request, but its detail may quote one.
    pub(super) fn of(parts: &Parts, body: &Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        struct Document {
            r#type: Option<String>,
            title: Option<String>,
        }
        let kind = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        if !kind.starts_with("application/problem+json") {
            return None;
        }
        let why = match serde_json::from_slice(body).ok()? {
            Document { r#type: Some(kind), title: Some(title) } => format!("{title} ({kind})"),
            Document { r#type: one, title: other } => one.or(other)?,
        };
        Some(Self(why.into()))
    }
}
