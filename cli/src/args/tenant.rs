//! The arguments of `tenant`.

use clap::{Args, Subcommand};
use lambda_idempotency::{
    bounds::Rate,
    key::{OperationName, Tenant},
};

use super::change::ChangeArgs;
use crate::values::{bound, operation, tenant};

#[derive(Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    pub what: TenantCommand,
}

#[derive(Subcommand)]
pub enum TenantCommand {
    /// Show what operators have set for a tenant, and how many of its records are open; or for all tenants
    Show {
        /// The tenant
        #[arg(value_parser = tenant)]
        tenant: Option<Tenant>,
    },
    /// Set limits of a tenant for an operation, in place of the program's
    Limit(Limit),
    /// Let nothing new begin for a tenant: known everywhere within ten seconds. What is open is settled
    Stop {
        /// The tenant
        #[arg(value_parser = tenant)]
        tenant: Tenant,
        /// Let its accepted work wait too
        #[arg(long)]
        work: bool,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Let a stopped tenant go on
    Resume {
        /// The tenant
        #[arg(value_parser = tenant)]
        tenant: Tenant,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

#[derive(Args)]
pub struct Limit {
    /// The tenant
    #[arg(value_parser = tenant)]
    pub tenant: Tenant,
    /// The operation's name
    #[arg(value_parser = operation)]
    pub operation: OperationName,
    /// New keys: 10/s or 100/min, and with a burst 10/s+1200
    #[arg(long, value_name = "RATE", value_parser = bound)]
    pub new_keys: Option<Rate>,
    /// Bytes of requests that are accepted, to be executed later: 100000/s
    #[arg(long, value_name = "RATE", value_parser = bound)]
    pub accepted_bytes: Option<Rate>,
    /// Records whose outcome is unknown or that are between workers, of all operations: from 1 to 100000
    #[arg(long, value_name = "NUMBER")]
    pub open_records: Option<usize>,
    /// Let those of the program apply again, in place of all that are set
    #[arg(long, conflicts_with_all = ["new_keys", "accepted_bytes", "open_records"], required_unless_present_any = ["new_keys", "accepted_bytes", "open_records"])]
    pub none: bool,
    #[command(flatten)]
    pub change: ChangeArgs,
}
