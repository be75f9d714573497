//! The protocol of `lambda-idempotency`, without I/O.
//!
//! A record of one operation is a compare-and-set register. Here is all that decides about it: what a caller may do, what a worker's report
//! changes, what others may settle. Each decision is a pure function: no await, no clock, no randomness, no store, no HTTP. The library
//! carries them out, and the model tries them in every order.
//!
//! | module | what |
//! | --- | --- |
//! | [`record`] | the record, its states, and the transitions between them |
//! | [`learned`] | what is learned about an unknown outcome, from the provider's answer or its own report, and what that changes |
//! | [`key`] | the identity of a record, and all that is derived from it |
//! | [`fingerprint`] | what tells a retry from another request |
//! | [`limits`] | how much a tenant may use, and the arithmetic of its bounds |
//! | [`time`] | instants, and how far clocks may be apart |
//! | [`backoff`] | the waits between tries |
//!
//! `pub` here means: for the packages of this workspace. Users see what `lambda-idempotency` names again.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod backoff;
pub mod bucket;
pub mod fingerprint;
pub mod key;
pub mod learned;
pub mod limits;
pub mod record;
pub mod time;
