//! The options of every change.

use clap::Args;

use crate::values::words;

/// The options of every change.
#[derive(Args)]
pub struct ChangeArgs {
    /// Why the change is made, for the audit line
    #[arg(long, value_name = "TEXT", value_parser = words)]
    pub reason: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Who makes the change, for the audit line [default: $USER, or $LOGNAME, and the host, unless that is a shared user, such as root]
    #[arg(long = "as", value_name = "WHO", value_parser = words)]
    pub who: Option<String>,
}
