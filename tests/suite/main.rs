//! The one test crate: linking the SDK once, not once a subject.

mod support;
mod support_works;
