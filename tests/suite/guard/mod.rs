//! The guard around a handler: what is run, refused, replayed and kept.

mod dropped;
mod expiry;
mod failures;
mod heartbeats;
mod in_flight;
mod layers;
mod leases;
mod refusals;
mod replays;
mod together;
mod told;
mod virtual_time;
