//! Payloads that Amazon's extended clients of SQS and SNS keep in S3, because they are larger than a message may be.
//!
//! 1. The body of such a message is a pointer. Each send of one payload has another one: it is no content, and no key is in it.
//! 2. A consumer loads payloads only from buckets that it names: whoever sends a message chooses what the pointer names.
//! 3. It is loaded before the message's key and fingerprint are taken. Until then nothing is begun.

mod pointer;
#[cfg(feature = "s3")]
mod s3;

pub(super) use pointer::PayloadPointer;
#[cfg(feature = "s3")]
pub(super) use s3::Payloads;
