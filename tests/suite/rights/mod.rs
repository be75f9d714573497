//! The template `infra/tenant-role.yaml`: credentials of one tenant reach what the guard needs for that tenant, and nothing else.
//!
//! The requests are real: a gate between the SDK and the embedded DynamoDB reads each of them as IAM would, and evaluates the template's
//! own statements.

mod call;
mod context;
mod evaluated;
mod everything;
mod gate;
mod names;
mod policy;
mod refused;
mod role;
mod whole_requests;
