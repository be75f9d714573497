//! CloudWatch's alarms: what a template declares, evaluated over metrics with holes. A template that deploys may have an alarm that never
//! comes.
//!
//! Data flows one way: template, [`Alarm`], [`Alarm::state`].
//!
//! | module | what |
//! | --- | --- |
//! | `recorded` | the values of metrics, and their statistics in windows of time |
//! | `expression` | metric math, as it is written |
//! | `math` | its values |
//! | `alarm` | an alarm, as a template declares it |
//! | `state` | its state at a moment |
//! | `reading` | what AWS's documents leave open |
//! | `aws` | the metrics that AWS's services write |
//!
//! It knows what the templates use, and no more. All else is an error: a property, a statistic, a function or an operator that it does not
//! know, and an argument of another type.
//!
//! Sources, of the CloudWatch user guide (<https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/>):
//!
//! - `alarm-evaluation.html`, `alarms-and-missing-data.html`: M of N; values beyond the evaluation periods; missing values.
//! - `alarm-evaluation-window.html`: windows slide, and end at the evaluation, unless an alarm chooses others.
//! - `using-metric-math.html`: operators and functions, and what they do with missing values.

mod alarm;
pub(crate) mod aws;
mod expression;
mod math;
mod reading;
mod recorded;
mod state;

pub use alarm::Alarm;
pub use reading::Reading;
pub use recorded::{Metric, Recorded};
pub use state::AlarmState;

use crate::template::{self, Place, Stack, Template};
use std::{collections::HashMap, path::Path};

/// The alarms of a template and of those that are nested in it, with its parameters' defaults.
///
/// # Errors
/// If the template cannot run here, or an alarm has something that this module does not know.
pub fn of_template(file: &Path) -> Result<Vec<Alarm>, String> {
    // Of the queues, alarms know only the names.
    let place = Place { prefix: "local-", region: "eu-central-1", sqs: "http://127.0.0.1", ignored: &[] };
    of_stack(&template::stack(&Template::read(file)?, HashMap::new(), &place)?)
}

/// The alarms of a stack.
///
/// # Errors
/// If an alarm has something that this module does not know.
pub(crate) fn of_stack(stack: &Stack) -> Result<Vec<Alarm>, String> {
    let alarms = stack.alarms.iter().map(|declared| {
        let alarm = declared.properties.as_ref().map_err(String::clone);
        let alarm = alarm.and_then(|properties| Alarm::of(&declared.name, properties));
        alarm.map_err(|error| format!("alarm {}: {error}", declared.name))
    });
    alarms.collect()
}
