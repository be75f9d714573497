//! The program `idempotency`.

use std::process::ExitCode;

fn main() -> ExitCode {
    idempotency_cli::main()
}
