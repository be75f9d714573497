//! What clients rely on: keys, profiles, and the identity of a request through every front.

mod addressing;
mod bodies;
mod body_types;
mod clients;
mod delivered;
mod fronts;
mod keys;
mod large_bodies;
mod old_keys;
mod phases;
mod profiles;
mod request_bodies;
mod stages;
mod targets;
