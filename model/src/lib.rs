//! Tries every interleaving of the protocol's steps, with the production code for each step.

pub mod accepted;
pub mod functions;
pub mod kernel;
pub mod known;
pub mod mutations;
pub mod phases;
pub mod plain;
