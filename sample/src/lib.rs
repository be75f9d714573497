//! The local cloud with the sample: its template, and its functions in one program.

use std::process::ExitCode;

use local::Sample;

/// The sample, whose template is nothing but the first one.
static SAMPLE: Sample = Sample {
    template: include_str!("../../infra/sample.yaml"),
    functions: &[
        ("compare", || Box::pin(compare::run())),
        ("order-queue", || Box::pin(orders::order_queue())),
        ("orders", || Box::pin(orders::run())),
        ("payments", || Box::pin(payments::run())),
        ("reconcile", || Box::pin(reconcile::reconcile())),
        ("report-worker", || Box::pin(reports::worker())),
        ("reports", || Box::pin(reports::run())),
        ("shipping", || Box::pin(shipping::run())),
        ("webhook", || Box::pin(reconcile::webhook())),
    ],
};

/// Runs the program `local`, or one of its functions if `LOCAL_FUNCTION` names it.
pub fn main() -> ExitCode {
    local::main(Some(&SAMPLE))
}
