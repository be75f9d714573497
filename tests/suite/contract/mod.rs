//! What clients rely on: keys, profiles, and the identity of a request through every front.

mod addressing;
mod bodies;
mod body_types;
mod clients;
mod delivered;
mod fronts;
mod hosts;
mod key_parts;
mod key_places;
mod keys;
mod large_bodies;
mod odd_events;
mod old_keys;
mod own_words;
mod phases;
mod profiles;
mod request_bodies;
mod sent_headers;
mod stages;
mod targets;
mod webhook_fronts;
mod webhook_settings;
mod webhooks;
