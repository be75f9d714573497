//! `infra/resources.md`: the template's resources with their properties, for those who use neither CloudFormation nor Terraform.

use serde_json::Value;

use super::{
    super::{list, members},
    stack::plain,
};

/// The most characters of a row, so that it can be read beside its neighbours.
const MAX_ROW: usize = 300;

const BEGINNING: &str = "\
# The resources of the template, with their properties

Made from `idempotency.yaml`, whose comments give the reasons. Do not edit it. For Terraform and CDK, see [docs/terraform.md](../docs/terraform.md).

Properties have CloudFormation's names. `Name.Arn` is an attribute of the resource `Name`; a name alone is what `Ref` returns, or a parameter.
`TableName`, `TableArn` and `StreamArn` are those of the table, existing or new. `NAME` is the stack's name. Left out: descriptions, the dashboard, and the saved queries.
";

/// The page.
pub fn page(template: &Value) -> String {
    let list = List { template };
    let parts = [
        BEGINNING.to_owned(),
        list.conditions(),
        list.resources("Table", "AWS::DynamoDB::Table", "A deleted stack keeps it."),
        list.resources(
            "Queues",
            "AWS::SQS::Queue",
            "A deleted stack keeps those marked *kept*. Each has a policy that denies `sqs:*` to all, on itself, if `aws:SecureTransport` is false.",
        ),
        list.resources("Functions", "AWS::Serverless::Function", "With what SAM makes of their events: `Events.Changes` and so on."),
        list.resources("Logs", "AWS::Logs::LogGroup", ""),
        list.roles(),
        list.alarms(),
        list.expressions(),
    ];
    parts.join("\n")
}

struct List<'a> {
    template: &'a Value,
}

impl<'a> List<'a> {
    fn of(&self, kind: &str) -> Vec<(&'a String, &'a Value)> {
        let mut all: Vec<_> =
            members(&self.template["Resources"]).filter(|(_, it)| it["Type"] == kind).collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    fn conditions(&self) -> String {
        let mut conditions: Vec<_> = members(&self.template["Conditions"]).collect();
        conditions.sort_by_key(|(name, _)| *name);
        let rows = conditions.iter().map(|(name, condition)| row(&[name, &self.condition(condition)]));
        table("Conditions", "", &["condition", "holds if"], rows)
    }

    fn condition(&self, condition: &Value) -> String {
        let sides = |value: &Value, verb: &str| {
            let sides: Vec<_> = list(value).into_iter().map(|side| self.shown(side)).collect();
            format!("`{}` {verb} `{}`", sides[0], if sides[1].is_empty() { "\"\"" } else { &sides[1] })
        };
        match members(condition).next().map(|(name, argument)| (&**name, argument)) {
            Some(("Fn::Equals", argument)) => sides(argument, "is"),
            Some(("Fn::Not", argument)) => sides(&argument[0]["Fn::Equals"], "is not"),
            Some(("Fn::And", argument)) => {
                let all: Vec<_> = list(argument).into_iter().map(|one| self.condition(one)).collect();
                all.join(" and ")
            }
            Some((_, name)) => plain(name),
            None => panic!("no condition"),
        }
    }

    /// The resources of a type, each in one row or more.
    fn resources(&self, title: &str, kind: &str, sentence: &str) -> String {
        let all = self.of(kind).into_iter();
        let rows = all.flat_map(|(name, resource)| {
            let kept = if resource["DeletionPolicy"] == "Retain" { ", *kept*" } else { "" };
            let mut pieces = Vec::new();
            if kind == "AWS::Serverless::Function" {
                self.add(&self.template["Globals"]["Function"], "", &mut pieces);
            }
            self.add(&resource["Properties"], "", &mut pieces);
            pieces.retain(|piece| !piece.starts_with("CodeUri"));
            wrapped(&format!("`{name}`{kept}"), &condition_of(resource), &pieces)
        });
        table(title, sentence, &["resource", "if", "properties"], rows)
    }

    fn roles(&self) -> String {
        let rows = self.of("AWS::IAM::Role").into_iter().flat_map(|(name, role)| {
            let properties = &role["Properties"];
            let trusted = &properties["AssumeRolePolicyDocument"]["Statement"][0];
            let mut pieces = Vec::new();
            self.add(trusted, "", &mut pieces);
            let first =
                row(&[&format!("`{name}`"), &condition_of(role), "who may take it", &pieces.join("; "), ""]);
            let statements = list(&properties["Policies"][0]["PolicyDocument"]["Statement"]).into_iter();
            let rest = statements.map(move |statement| {
                let (condition, statement) = match list(&statement["Fn::If"])[..] {
                    [condition, statement, _] => (plain(condition), statement),
                    _ => (condition_of(role), statement),
                };
                let shown = |part: &str| self.shown(&statement[part]);
                row(&[
                    &format!("`{name}`"),
                    &condition,
                    &shown("Sid"),
                    &code(&shown("Action")),
                    &code(&shown("Resource")),
                ])
            });
            std::iter::once(first).chain(rest).collect::<Vec<_>>()
        });
        let titles = ["role", "if", "statement", "actions", "resources"];
        table("Roles", "Each has one policy, whose statements allow these.", &titles, rows)
    }

    fn alarms(&self) -> String {
        let rows = self.of("AWS::CloudWatch::Alarm").into_iter().map(|(name, alarm)| {
            let properties = &alarm["Properties"];
            let shown = |property: &str| self.shown(&properties[property]);
            let metric = match &properties["Metrics"] {
                Value::Null => self.metric(properties, "Statistic", &properties["Period"]),
                _ => "an [expression](#expressions-of-alarms)".to_owned(),
            };
            let sign = match &*shown("ComparisonOperator") {
                "GreaterThanThreshold" => ">",
                "LessThanThreshold" => "<",
                other => panic!("{name}: {other}"),
            };
            let periods = shown("EvaluationPeriods");
            let points = if properties["DatapointsToAlarm"].is_null() {
                periods.clone()
            } else {
                shown("DatapointsToAlarm")
            };
            let raised = format!("{sign} {}, in {points} of {periods}", shown("Threshold"));
            row(&[&format!("`{name}`"), &condition_of(alarm), &metric, &raised, &shown("TreatMissingData")])
        });
        let titles = ["alarm", "if", "metric", "threshold, and in how many periods", "missing data"];
        let sentence = "`AlarmActions` and `OKActions` of each are `AlarmTopicArn`, unless it is empty. [alarms](../docs/alarms.md) has the meanings.";
        table("Alarms", sentence, &titles, rows)
    }

    /// A metric, as `Sum of AWS/SQS NumberOfMessagesSent, QueueName FailedRunsQueue.QueueName, 900 s`.
    fn metric(&self, metric: &Value, statistic: &str, period: &Value) -> String {
        let statistic =
            if metric[statistic].is_null() { statistic.to_owned() } else { self.shown(&metric[statistic]) };
        let dimensions = list(&metric["Dimensions"]).into_iter();
        let dimensions =
            dimensions.map(|pair| format!(", {} {}", self.shown(&pair["Name"]), self.shown(&pair["Value"])));
        format!(
            "{statistic} of {} {}{}, {} s",
            self.shown(&metric["Namespace"]),
            self.shown(&metric["MetricName"]),
            dimensions.collect::<String>(),
            self.shown(period),
        )
    }

    /// The metrics and expressions of alarms that have several. The last is compared.
    fn expressions(&self) -> String {
        let mut text = "## Expressions of alarms\n\nThe last of each is compared with the threshold; the others return no data.\n\n```\n".to_owned();
        for (name, alarm) in self.of("AWS::CloudWatch::Alarm") {
            let queries = list(&alarm["Properties"]["Metrics"]);
            for (at, query) in queries.iter().enumerate() {
                let is_returned = query["ReturnData"].is_null();
                assert_eq!(is_returned, at + 1 == queries.len(), "{name} returns another than its last");
                let value = match &query["MetricStat"] {
                    Value::Null => self.shown(&query["Expression"]),
                    stat => self.metric(&stat["Metric"], &self.shown(&stat["Stat"]), &stat["Period"]),
                };
                text += &format!("{name}  {} = {value}\n", self.shown(&query["Id"]));
            }
        }
        text + "```\n"
    }

    /// The parts of a value, each with its path.
    fn add(&self, value: &Value, path: &str, pieces: &mut Vec<String>) {
        let is_object = |value: &Value| value.is_object() && !is_call(value);
        match value {
            Value::Object(_) if is_object(value) => {
                let mut all: Vec<_> = members(value).collect();
                all.sort_by_key(|(name, _)| *name);
                for (name, value) in all {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.add(value, &path, pieces);
                }
            }
            Value::Array(values) if values.iter().any(is_object) => {
                for (place, value) in values.iter().enumerate() {
                    self.add(value, &format!("{path}.{place}"), pieces);
                }
            }
            // Which part of an event it is, says its name.
            value => {
                pieces.push(format!("{} {}", path.replace(".Properties.", "."), code(&self.shown(value))))
            }
        }
    }

    /// A value in one line.
    fn shown(&self, value: &Value) -> String {
        for output in ["TableName", "TableArn", "StreamArn"] {
            if self.template["Outputs"][output]["Value"] == *value {
                return output.to_owned();
            }
        }
        match value {
            Value::Array(values) => {
                values.iter().map(|value| self.shown(value)).collect::<Vec<_>>().join(", ")
            }
            Value::Object(object) => match object.iter().next().map(|(name, argument)| (&**name, argument)) {
                Some(("Ref" | "Fn::GetAtt", Value::String(name))) => name.clone(),
                Some(("Fn::Sub", argument)) => plain(list(argument)[0])
                    .replace("${AWS::Partition}", "aws")
                    .replace("${AWS::Region}:${AWS::AccountId}", "REGION:ACCOUNT")
                    .replace("${AWS::StackName}", "NAME")
                    .replace("${Instance}", "(a part of the stack's id)"),
                Some(("Fn::If", branches)) => {
                    let then = self.shown(&branches[1]);
                    let condition = plain(&branches[0]);
                    match &branches[2] {
                        none if none["Ref"] == "AWS::NoValue" => format!("{then}, if {condition}"),
                        otherwise => format!("{then}, if {condition}, else {}", self.shown(otherwise)),
                    }
                }
                _ => panic!("it is not shown: {value}"),
            },
            scalar => plain(scalar),
        }
    }
}

/// An intrinsic function.
fn is_call(value: &Value) -> bool {
    members(value).next().is_some_and(|(name, _)| name.starts_with("Fn::") || name == "Ref")
}

fn condition_of(resource: &Value) -> String {
    resource["Condition"].as_str().unwrap_or_default().to_owned()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn row(cells: &[&str]) -> String {
    let row = format!("| {} |", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |");
    assert!(row.len() <= MAX_ROW, "a row of {} characters: {row}", row.len());
    row
}

/// A row, and more of them if its pieces do not fit into one.
fn wrapped(name: &str, condition: &str, pieces: &[String]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut cell = String::new();
    let rest = MAX_ROW - name.len() - condition.len() - 12;
    for piece in pieces {
        if !cell.is_empty() && cell.len() + 2 + piece.len() > rest {
            rows.push(row(&[name, condition, &cell]));
            cell.clear();
        }
        if !cell.is_empty() {
            cell += "; ";
        }
        cell += piece;
    }
    rows.push(row(&[name, condition, &cell]));
    rows
}

fn table(title: &str, sentence: &str, titles: &[&str], rows: impl Iterator<Item = String>) -> String {
    let sentence = if sentence.is_empty() { String::new() } else { format!("{sentence}\n\n") };
    let line = format!("|{}\n", " --- |".repeat(titles.len()));
    let rows: String = rows.map(|row| format!("{row}\n")).collect();
    format!("## {title}\n\n{sentence}{}\n{line}{rows}", row(titles))
}
