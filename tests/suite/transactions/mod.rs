//! Domain writes that commit with their record, or not at all.

mod commits;
mod late_writes;
mod many_transfers;
mod single_transaction;
mod single_transaction_routes;
mod transfers;
