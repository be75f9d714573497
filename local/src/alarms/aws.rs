//! The metrics that AWS's services write.

use super::recorded::Metric;

/// A metric of a function.
pub fn of_function(function: &str, name: &str) -> Metric {
    metric("AWS/Lambda", name, ("FunctionName", function))
}

/// A metric of a queue.
pub fn of_queue(queue: &str, name: &str) -> Metric {
    metric("AWS/SQS", name, ("QueueName", queue))
}

fn metric(namespace: &str, name: &str, (dimension, value): (&str, &str)) -> Metric {
    Metric {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        dimensions: [(dimension.to_owned(), value.to_owned())].into(),
    }
}
