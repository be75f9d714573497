//! What the worlds share: production code on records that are known by a number, one state of everything, the steps that are the same,
//! and the exploration of all states. A world says what is its own.
//!
//! From the bottom: `violation`, `setting`, `records`, `report`, `ending`, `facts`, `protocol`, `action`, `world`, `steps`, `outside`,
//! `reports`, `rest`, `explore`. A file uses only those before it.

pub mod action;
pub mod ending;
pub mod explore;
pub mod facts;
mod outside;
pub mod protocol;
pub mod records;
pub mod report;
mod reports;
pub mod rest;
pub mod setting;
pub mod steps;
pub mod violation;
pub mod world;
