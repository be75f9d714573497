//! The sample's orders: an operation with two external effects, which resumes behind what is kept.

mod again;
mod crashes;
mod interrupted;
mod kills;
mod outcomes;
mod routes;
