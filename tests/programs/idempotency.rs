//! The command line as the suite starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    idempotency_cli::main()
}
