//! Adds the resources of a template, and of those nested in it, to a stack.

use super::{
    event::Event,
    file::Template,
    names::{APPLICATION, LEFT_OUT, Named, Place},
    parameters, pattern,
    problems::{Problems, at},
    scope::{Scope, refuse},
    stack::{AlarmResource, Function, Queue, Rule, Stack, Table},
    yaml,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// The template that everybody deploys, as a nested stack of their own.
const IDEMPOTENCY: (&str, &str) = ("idempotency.yaml", include_str!("../../infra/idempotency.yaml"));

const ALARM: &str = "AWS::CloudWatch::Alarm";

/// The transform that adds to the intrinsic functions.
const EXTENSIONS: &str = "AWS::LanguageExtensions";

/// The outputs of a template: each value, or why there is none here.
pub type Outputs = BTreeMap<String, Result<Value, String>>;

/// What a template runs at that place, with its parameters.
///
/// # Errors
/// If something cannot run here; the error names file and resource.
pub fn stack(
    template: &Template,
    parameters: HashMap<String, Value>,
    place: &Place<'_>,
) -> Result<Stack, String> {
    let mut stack = Stack::default();
    let added = yaml::parse(&template.text).and_then(|parsed| {
        parameters::check(&parameters, &section(&parsed, "Parameters"))?;
        add(template, &parsed, &mut stack, parameters, place)
    });
    added.and_then(|_| stack.check()).map_err(|error| at(&template.name, &error))?;
    Ok(stack)
}

/// Adds its resources, and returns its outputs.
fn add(
    from: &Template,
    parsed: &Value,
    stack: &mut Stack,
    parameters: HashMap<String, Value>,
    place: &Place<'_>,
) -> Result<Outputs, String> {
    let section = |name: &str| section(parsed, name);
    let resources = section("Resources");
    if resources.is_empty() {
        return Err("it has no Resources: is it a SAM template?".to_owned());
    }
    let mut scope = Scope {
        parameters,
        declared: section("Parameters"),
        conditions: section("Conditions"),
        mappings: section("Mappings"),
        is_extended: transforms(parsed).contains(&EXTENSIONS),
        references: place.references(),
        resources,
    };
    let (mut found, mut problems) = (Vec::new(), Problems::default());
    for (id, resource) in &scope.resources.clone() {
        let named = names(from, id, resource, stack, &scope, place);
        if let Some(Some(named)) =
            problems.unless(named.map_err(|error| at(&format!("resource {id}"), &error)))
        {
            let kind = resource["Type"].as_str().unwrap_or_default();
            scope.references.extend(named.references(id, kind, place));
            found.push((id.clone(), kind.to_owned(), resource.clone(), named));
        }
    }
    // Nested stacks first: others use their outputs.
    found.sort_by_key(|(_, kind, ..)| *kind != APPLICATION);
    for (id, kind, resource, named) in found {
        let mut adding = Adding { template: from, stack, scope: &mut scope, place, globals: parsed };
        let added = adding.add(&id, &kind, &resource, named);
        problems.unless(added.map_err(|error| at(&format!("resource {id}"), &error)));
    }
    problems.none()?;
    for (id, resource) in scope.resources.iter().filter(|(_, resource)| resource["Type"] == ALARM) {
        if exists(resource, &scope)? {
            let properties = scope.value(&resource["Properties"]).map(Option::unwrap_or_default);
            stack.alarms.push(AlarmResource { name: id.clone(), properties });
        }
    }
    let outputs = section("Outputs");
    let outputs = outputs.iter().filter(|(_, output)| {
        output["Condition"].as_str().is_none_or(|condition| scope.holds(condition).unwrap_or(true))
    });
    let value =
        |output: &Value| scope.value(&output["Value"])?.ok_or_else(|| "the output has no value".to_owned());
    Ok(outputs.map(|(name, output)| (name.clone(), value(output))).collect())
}

/// The members of a section.
fn section(parsed: &Value, name: &str) -> Map<String, Value> {
    parsed[name].as_object().cloned().unwrap_or_default()
}

/// The transforms of a template.
fn transforms(parsed: &Value) -> Vec<&str> {
    match &parsed["Transform"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// Whether its condition holds.
fn exists(resource: &Value, scope: &Scope) -> Result<bool, String> {
    resource["Condition"].as_str().map_or(Ok(true), |condition| scope.holds(condition))
}

/// The names of a resource; `None` if it is left out here.
fn names(
    from: &Template,
    id: &str,
    resource: &Value,
    stack: &mut Stack,
    scope: &Scope,
    place: &Place<'_>,
) -> Result<Option<Named>, String> {
    let kind = resource["Type"].as_str().ok_or("it has no Type")?;
    if !exists(resource, scope)? || place.ignored.iter().any(|ignored| ignored == id) {
        return Ok(None);
    }
    let properties = &resource["Properties"];
    if LEFT_OUT.iter().any(|left| kind.starts_with(left)) {
        return match has_subscriber(kind, properties, scope)? {
            true => Err(format!(
                "the local cloud has no topics of SNS, so that nothing comes by this subscription: to do without it here, add --ignore {id}"
            )),
            false => Ok(None),
        };
    }
    let is_fifo = kind == "AWS::SQS::Queue" && scope.is_true(&properties["FifoQueue"])?;
    let within = from.nested_as.as_deref();
    Named::of(id, kind, is_fifo, place, within, &mut stack.taken).map(Some)
}

/// Whether a topic or a subscription leads to a queue or a function.
fn has_subscriber(kind: &str, properties: &Value, scope: &Scope) -> Result<bool, String> {
    let subscriptions = match kind {
        "AWS::SNS::Subscription" => vec![properties],
        "AWS::SNS::Topic" => {
            scope.chosen(&properties["Subscription"])?.as_array().into_iter().flatten().collect()
        }
        _ => Vec::new(),
    };
    let mut protocols = subscriptions.into_iter().map(|one| scope.text(&one["Protocol"]));
    protocols.try_fold(false, |before, protocol| {
        Ok(before || protocol?.is_some_and(|protocol| ["sqs", "lambda"].contains(&&*protocol)))
    })
}

/// One resource is being added to a stack.
struct Adding<'a> {
    template: &'a Template,
    stack: &'a mut Stack,
    scope: &'a mut Scope,
    place: &'a Place<'a>,
    /// The template, with its `Globals`.
    globals: &'a Value,
}

impl Adding<'_> {
    fn add(&mut self, id: &str, kind: &str, resource: &Value, named: Named) -> Result<(), String> {
        let properties = &resource["Properties"];
        match kind {
            "AWS::DynamoDB::Table" => {
                let properties = self.scope.value(properties)?.unwrap_or_default();
                refuse(self.scope, &properties, &[("LocalSecondaryIndexes", "")])?;
                let Named { name, full_name } = named;
                self.stack.tables.push(Table { name, full_name, properties });
            }
            "AWS::SQS::Queue" => self.add_queue(named, properties)?,
            "AWS::Events::EventBus" => self.stack.buses.push(named.full_name),
            "AWS::Events::Rule" => self.add_rule(properties)?,
            "AWS::Serverless::Function" => self.add_function(id, named.name, resource)?,
            APPLICATION => self.add_nested(id, properties)?,
            _ => {}
        }
        Ok(())
    }

    fn add_queue(&mut self, named: Named, properties: &Value) -> Result<(), String> {
        refuse(self.scope, properties, &[("DelaySeconds", "0")])?;
        let policy = self.scope.value(&properties["RedrivePolicy"])?.unwrap_or_default();
        let dead_letters = match &policy["deadLetterTargetArn"] {
            Value::String(arn) => {
                let receives = self.scope.text(&policy["maxReceiveCount"])?.unwrap_or_default();
                let receives = receives.parse().map_err(|_| "its maxReceiveCount is no number")?;
                Some((arn.clone(), receives))
            }
            _ => None,
        };
        let queue = Queue {
            url: named.url(self.place),
            arn: self.place.arn("sqs", &named.full_name),
            dead_letters,
            is_fifo: self.scope.is_true(&properties["FifoQueue"])?,
            deduplicates_by_content: self.scope.is_true(&properties["ContentBasedDeduplication"])?,
            name: named.name,
            full_name: named.full_name,
        };
        self.stack.queues.push(queue);
        Ok(())
    }

    fn add_rule(&mut self, properties: &Value) -> Result<(), String> {
        if self.scope.text(&properties["State"])?.is_some_and(|state| state == "DISABLED") {
            return Ok(());
        }
        let bus = self.scope.text(&properties["EventBusName"])?;
        let bus = bus.ok_or("it has no EventBusName: the local cloud has no default event bus")?;
        let pattern = self.scope.value(&properties["EventPattern"])?;
        let pattern = pattern.ok_or("it has no EventPattern: a schedule is an event of its function")?;
        pattern::check(&pattern)?;
        let targets = self.scope.value(&properties["Targets"])?.unwrap_or_default();
        let targets = targets.as_array().map(Vec::as_slice).unwrap_or_default();
        let changes = [("Input", ""), ("InputPath", "$"), ("InputTransformer", "")];
        targets.iter().try_for_each(|target| refuse(self.scope, target, &changes))?;
        let arns = targets.iter().map(|target| target["Arn"].as_str().unwrap_or_default().to_owned());
        self.stack.rules.push(Rule { bus, pattern, queue_arns: arns.collect() });
        Ok(())
    }

    fn add_function(&mut self, id: &str, name: String, resource: &Value) -> Result<(), String> {
        let globals = &self.globals["Globals"]["Function"];
        let properties = &resource["Properties"];
        let property = |name: &str| match &properties[name] {
            Value::Null => &globals[name],
            own => own,
        };
        refuse(self.scope, properties, &[("FunctionUrlConfig", "")])?;
        if let Some(package) = self.scope.text(property("PackageType"))?.filter(|kind| kind != "Zip") {
            return Err(format!("the local cloud runs no function of PackageType {package}"));
        }
        let runtime = self.scope.text(property("Runtime"))?.unwrap_or_default();
        if !runtime.starts_with("provided") {
            return Err(format!(
                "the local cloud runs programs of the Runtime provided.al2023, not {runtime:?}"
            ));
        }
        let timeout = self.scope.text(property("Timeout"))?.map(|timeout| timeout.parse()).transpose();
        let mut variables = Map::new();
        for from in [globals, properties] {
            let own = self.scope.chosen(&self.scope.chosen(&from["Environment"])?["Variables"])?;
            variables.extend(own.as_object().cloned().unwrap_or_default());
        }
        let variables = variables.iter().filter_map(|(name, value)| {
            let value = self.scope.text(value).transpose()?;
            Some((name.clone(), value.and_then(not_dynamic)))
        });
        let variables = variables.collect();
        // It may be a topic, or a queue of another stack: these are not here, and nothing needs them.
        let on_failure =
            self.scope.value(&properties["EventInvokeConfig"]).ok().flatten().unwrap_or_default();
        let on_failure = &on_failure["DestinationConfig"]["OnFailure"];
        let failed_runs = on_failure["Destination"].as_str().filter(|_| on_failure["Type"] == "SQS");
        let binary = self.scope.text(&resource["Metadata"]["BuildProperties"]["Binary"])?;
        let code = self.scope.text(property("CodeUri"))?.unwrap_or_default();
        let code = self.template.folder.join(code);
        let mut has_clients = false;
        for (event, described) in properties["Events"].as_object().into_iter().flatten() {
            let read = Event::of(&name, event, described, self.scope);
            match read.map_err(|error| format!("event {event}: {error}"))? {
                Event::Route(route) => {
                    has_clients = true;
                    self.stack.routes.push(route);
                }
                Event::Queue(mapping) => self.stack.mappings.push(mapping),
                Event::Stream(mapping) => self.stack.streams.push(mapping),
                Event::Poller(poller) => self.stack.pollers.push(poller),
                Event::Schedule(schedule) => self.stack.schedules.push(schedule),
                Event::Nothing => {}
            }
        }
        self.stack.functions.push(Function {
            name,
            resource: id.to_owned(),
            binary,
            code,
            is_built_in: self.template.is_built_in,
            timeout: timeout.map_err(|_| "its Timeout is no number")?,
            variables,
            has_clients,
            failed_runs: failed_runs.map(str::to_owned),
        });
        Ok(())
    }

    /// Whether this is the name of a table of this template.
    fn is_own_table(&self, name: &Value) -> bool {
        let Ok(Some(name)) = self.scope.value(name) else { return false };
        let tables =
            self.scope.resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::DynamoDB::Table");
        tables.filter_map(|(id, _)| self.scope.references.get(id)).any(|own| own.as_ref() == Ok(&name))
    }

    fn add_nested(&mut self, id: &str, properties: &Value) -> Result<(), String> {
        let location = self.scope.value(&properties["Location"])?.unwrap_or_default();
        let location =
            location.as_str().ok_or("its Location must be a file, or end with idempotency.yaml")?;
        if self.template.nested_as.is_some() {
            return Err("the local cloud runs no stack that is nested in a nested one".to_owned());
        }
        let is_ours = location.rsplit('/').next() == Some(IDEMPOTENCY.0);
        let file = self.template.folder.join(location);
        let nested = match file.is_file() && !self.template.is_built_in {
            true => Template { is_built_in: is_ours, ..Template::read(&file)? },
            false if is_ours => Template::built_in(IDEMPOTENCY.0, IDEMPOTENCY.1),
            false => return Err(format!("there is no file {}", file.display())),
        };
        let nested = Template { nested_as: Some(id.to_owned()), ..nested };
        let (mut parameters, mut problems) = (HashMap::new(), Problems::default());
        let given = properties["Parameters"].as_object();
        let has_table = self.is_own_table(&properties["Parameters"]["ExistingTableName"]);
        for (name, value) in given.into_iter().flatten() {
            // A table that is elsewhere is not here: the nested stack makes one.
            let is_table = ["ExistingTableName", "ExistingTableStream"].contains(&name.as_str());
            if is_ours && is_table && !has_table {
                continue;
            }
            let value = self.scope.value(value).map_err(|error| format!("parameter {name}: {error}"));
            parameters.extend(problems.unless(value).flatten().map(|value| (name.clone(), value)));
        }
        problems.none()?;
        if is_ours && !has_table {
            parameters.insert("ExistingTableName".to_owned(), json!("no"));
        }
        let outputs = yaml::parse(&nested.text).and_then(|parsed| {
            let declared = section(&parsed, "Parameters");
            if let Some(unknown) = parameters.keys().find(|name| !declared.contains_key(*name)) {
                return Err(format!("it has no parameter {unknown}"));
            }
            add(&nested, &parsed, self.stack, parameters, self.place)
        });
        let outputs = outputs.map_err(|error| at(&nested.name, &error))?;
        if is_ours {
            let known = outputs
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_ref().ok()?.as_str()?.to_owned())));
            self.stack.outputs = known.collect();
        }
        let outputs = outputs.into_iter().map(|(name, value)| (format!("{id}.Outputs.{name}"), value));
        self.scope.references.extend(outputs);
        Ok(())
    }
}

/// The text, if it is not read from a secret store at its deployment.
fn not_dynamic(text: String) -> Result<String, String> {
    match text.contains("{{resolve:") {
        true => Err("it is read from a secret or a parameter of AWS".to_owned()),
        false => Ok(text),
    }
}
