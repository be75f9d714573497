//! One write to a user's table.

use std::{
    any::type_name_of_val,
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};
use serde_dynamo::{AttributeValue, Item};

use super::{DomainWriteError, Table, Topic, size};
use crate::{
    decimal::Decimal,
    json,
    record::{Answer, AnswerKind},
};

/// The largest item.
const MAX_ITEM: usize = 400 * 1024;

/// The values of all placeholders of a write.
const MAX_VALUES: usize = 2 * 1024 * 1024;

/// The largest key attributes, in bytes.
const MAX_PARTITION_KEY: usize = 2048;
const MAX_SORT_KEY: usize = 1024;

/// The longest message, as JSON. With its envelope it fits into 256 KiB, which every queue and event bus takes.
const MAX_MESSAGE: usize = 240 * 1024;

/// The attribute with a message's body.
const BODY: &str = "body";

/// How deep lists and maps may be nested.
const MAX_DEPTH: usize = 32;

/// The longest expression, and the largest set of expressions with their names and values that one write may have.
const MAX_EXPRESSION: usize = 4 * 1024;

/// What commits with an operation: a write to one of your tables, see [`Table`], or a message, see [`Topic`].
#[derive(Clone, PartialEq, Serialize, Deserialize, derive_more::Debug)]
// Without the item.
#[debug("DomainWrite({action:?} in {table})")]
#[must_use = "pass it to Execution::write"]
pub struct DomainWrite {
    /// Of a message: its topic.
    pub(crate) table: String,
    /// The key alone, unless it is a put. Of a message: its body.
    pub(crate) item: Item,
    key_names: Vec<String>,
    pub(crate) action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) names: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) values: BTreeMap<String, AttributeValue>,
    #[serde(default)]
    pub(crate) if_refused: IfRefused,
    /// Why it can never be sent. Reported when the write is added, so that a write is made in one chain of calls.
    #[serde(skip)]
    error: Option<DomainWriteError>,
}

/// What is done with the item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Put,
    /// By this update expression.
    Update(String),
    Delete,
    Check,
    /// A message is put into the outbox.
    Publish,
}

/// What a failed condition means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IfRefused {
    /// No answer is set for it.
    #[default]
    Fail,
    /// The operation is refused, with this answer.
    Answer(#[serde(with = "super::answer")] Answer),
    /// It was computed from a stale read: compute it again.
    Recompute,
}

impl Table {
    /// Puts `item`, and replaces the current item, unless the write gets a [condition](DomainWrite::condition).
    pub fn put(&self, item: impl Serialize) -> DomainWrite {
        DomainWrite::of(self, &item, Action::Put)
    }

    /// Updates the item with this key by an
    /// [update expression](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html);
    /// creates it if there is none, unless the write gets a [condition](DomainWrite::condition).
    pub fn update(&self, key: impl Serialize, expression: impl Into<String>) -> DomainWrite {
        DomainWrite::of(self, &key, Action::Update(expression.into()))
    }

    /// Deletes the item with this key, if there is one.
    pub fn delete(&self, key: impl Serialize) -> DomainWrite {
        DomainWrite::of(self, &key, Action::Delete)
    }

    /// Writes nothing: the transaction commits only if the item with this key meets the [condition](DomainWrite::condition),
    /// which is needed.
    pub fn check(&self, key: impl Serialize) -> DomainWrite {
        DomainWrite::of(self, &key, Action::Check)
    }
}

impl Topic {
    /// A message of this topic. What is published commits with the operation, and is delivered later: see [`outbox`](crate::outbox).
    ///
    /// A message has no condition. As JSON it has at most 240 KiB. One that [JSON cannot carry](crate::JsonError) is refused when it is added.
    pub fn message(&self, body: &impl Serialize) -> DomainWrite {
        let mut write = DomainWrite::new(self.name().to_owned(), Vec::new(), Action::Publish);
        match json::to_string(body) {
            Ok(json) => drop(write.item.insert(BODY.to_owned(), AttributeValue::S(json))),
            Err(why) => {
                let reason = format!("JSON cannot carry its {}: {why}", type_name_of_val(body));
                write.fail(write.unpublishable(&reason));
            }
        }
        write
    }
}

impl DomainWrite {
    /// How many writes one transaction may have: it has a hundred actions, and up to three are the guard's.
    pub const MAX: usize = size::MAX_WRITES;

    pub(super) fn of(table: &Table, item: &impl Serialize, action: Action) -> Self {
        let key_names = table.key_names().map(str::to_owned).collect();
        let mut write = Self::new(table.name().to_owned(), key_names, action);
        match serde_dynamo::to_item(item) {
            Ok(item) => write.item = item,
            Err(error) => write.fail(write.shape(&error)),
        }
        write
    }

    fn new(table: String, key_names: Vec<String>, action: Action) -> Self {
        Self {
            table,
            item: Item::default(),
            key_names,
            action,
            condition: None,
            names: BTreeMap::new(),
            values: BTreeMap::new(),
            if_refused: IfRefused::Fail,
            error: None,
        }
    }

    /// Topic and body, if it is a message.
    pub(crate) fn message(&self) -> Option<(&str, &str)> {
        match (&self.action, self.item.get(BODY)) {
            (Action::Publish, Some(AttributeValue::S(body))) => Some((&self.table, body)),
            _ => None,
        }
    }

    /// Writes only if the current item meets this
    /// [condition](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.ConditionExpressions.html). A
    /// second call adds a second condition: both must hold.
    pub fn condition(mut self, expression: &str) -> Self {
        if expression.trim().is_empty() {
            self.fail(DomainWriteError::EmptyExpression(self.table.clone()));
        }
        self.condition = Some(match self.condition {
            // DynamoDB refuses a second pair of parentheses around one group.
            Some(first) => format!("{} AND {}", grouped(&first), grouped(expression)),
            None => expression.to_owned(),
        });
        self
    }

    /// Writes only if there is no such item.
    pub fn if_absent(self) -> Self {
        self.about_the_key("attribute_not_exists")
    }

    /// Writes only if there is such an item.
    pub fn if_present(self) -> Self {
        self.about_the_key("attribute_exists")
    }

    fn about_the_key(self, function: &str) -> Self {
        // A placeholder, because the name may be one of DynamoDB's reserved words.
        let key = self.key_names.first().cloned().unwrap_or_default();
        self.name("#idempotency_pk", &key).condition(&format!("{function}(#idempotency_pk)"))
    }

    /// Gives a placeholder (`#status`) in an expression the name of an attribute.
    pub fn name(mut self, placeholder: &str, attribute: &str) -> Self {
        if !set_once(&mut self.names, placeholder, attribute.to_owned()) {
            self.fail(self.placeholder(placeholder));
        }
        self
    }

    /// Gives a placeholder (`:cents`) in an expression its value.
    pub fn value(mut self, placeholder: &str, value: impl Serialize) -> Self {
        match serde_dynamo::to_attribute_value(value)
            .map(|value| set_once(&mut self.values, placeholder, value))
        {
            Ok(true) => {}
            Ok(false) => self.fail(self.placeholder(placeholder)),
            Err(error) => self.fail(self.shape(&error)),
        }
        self
    }

    fn placeholder(&self, placeholder: &str) -> DomainWriteError {
        DomainWriteError::Placeholder { table: self.table.clone(), placeholder: placeholder.to_owned() }
    }

    fn unpublishable(&self, reason: &impl ToString) -> DomainWriteError {
        DomainWriteError::Message { topic: self.table.clone(), reason: reason.to_string() }
    }

    fn shape(&self, reason: &impl ToString) -> DomainWriteError {
        DomainWriteError::Shape { table: self.table.clone(), reason: reason.to_string() }
    }

    /// Keeps the first error. It is reported when the write is added to its operation.
    fn fail(&mut self, error: DomainWriteError) {
        self.error.get_or_insert(error);
    }

    /// If the condition fails, the operation is refused with this answer, which is kept and replayed like any other, and
    /// nothing else is written. Of a function, it is an [`Answer::refusal`].
    pub fn or_answer(mut self, answer: Answer) -> Self {
        self.if_refused = IfRefused::Answer(answer);
        self
    }

    /// If the condition fails, the write was computed from a stale read: it is computed again, with everything that belongs to
    /// the operation, a bounded number of times.
    pub fn or_recompute(mut self) -> Self {
        self.if_refused = IfRefused::Recompute;
        self
    }

    /// Checks that callers who read this kind of answer can read that of a refusal.
    ///
    /// # Errors
    /// If they cannot.
    pub(crate) fn check_answer(&self, kind: AnswerKind) -> Result<(), DomainWriteError> {
        match &self.if_refused {
            IfRefused::Answer(answer) if !kind.takes(&answer.head) => {
                Err(DomainWriteError::AnswerKind(self.table.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the transaction can fail because of what is in the table. An update can name an attribute that is not there.
    pub(crate) const fn can_be_refused(&self) -> bool {
        self.condition.is_some() || matches!(self.action, Action::Update(_))
    }

    /// Whether this attribute is part of its key.
    pub(crate) fn is_key(&self, name: &str) -> bool {
        self.key_names.iter().any(|key| key == name)
    }

    /// The values of the key attributes. DynamoDB takes `1` and `1.0` for one number, so numbers are in their only form.
    pub(crate) fn key(&self) -> impl Iterator<Item = Cow<'_, AttributeValue>> {
        let values = self.key_names.iter().filter_map(|name| self.item.get(name));
        values.map(|value| match value {
            AttributeValue::N(text) => {
                number(text).map_or(Cow::Borrowed(value), |form| Cow::Owned(AttributeValue::N(form)))
            }
            _ => Cow::Borrowed(value),
        })
    }

    /// Whether both are about one item: a transaction takes one of them.
    pub(super) fn is_of_same_item(&self, other: &Self) -> bool {
        self.action != Action::Publish
            && is_same_table(&self.table, &other.table)
            && self.key().eq(other.key())
    }

    /// Its size, as DynamoDB counts the transaction.
    pub(super) fn size(&self) -> usize {
        let condition = self.condition.as_ref().map_or(0, String::len);
        let names = self.names.iter().map(|(placeholder, name)| placeholder.len() + name.len());
        let values = self.values.iter().map(|(placeholder, value)| placeholder.len() + size::of_value(value));
        size::of_item(&self.item) + condition + names.chain(values).sum::<usize>()
    }

    /// Refuses a write that DynamoDB would certainly refuse.
    pub(crate) fn check(&self) -> Result<(), DomainWriteError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.action == Action::Publish {
            return self.check_message();
        }
        let is_bad = |name: &&String| !self.item.get(name.as_str()).is_some_and(is_key);
        let is_other = |name: &&String| self.action != Action::Put && !self.key_names.contains(name);
        let wrong = self.key_names.iter().find(is_bad).or_else(|| self.item.keys().find(is_other));
        if self.key_names.is_empty() {
            return Err(DomainWriteError::Key { table: self.table.clone(), attribute: String::new() });
        }
        if let Some(attribute) = wrong {
            let (table, attribute) = (self.table.clone(), attribute.clone());
            return Err(DomainWriteError::Key { table, attribute });
        }
        let update = if let Action::Update(expression) = &self.action { Some(expression) } else { None };
        let expressions = || update.into_iter().chain(&self.condition);
        let values = || self.values.values().map(size::of_value);
        let key_sizes = self.key().map(|value| size::of_value(&value));
        let is_too_large = expressions().any(|expression| expression.len() > MAX_EXPRESSION)
            || size::of_item(&self.item) > MAX_ITEM
            || values().any(|size| size > MAX_ITEM)
            || values().sum::<usize>() > MAX_VALUES
            || key_sizes.zip([MAX_PARTITION_KEY, MAX_SORT_KEY]).any(|(size, limit)| size > limit);
        let has_no_condition = self.action == Action::Check && self.condition.is_none();
        let is_empty = expressions().any(|expression| expression.trim().is_empty());
        let has_no_status = matches!(&self.if_refused, IfRefused::Answer(answer) if !answer.head.is_final());
        for (is_wrong, error) in [
            (has_no_condition, DomainWriteError::NoCondition as fn(String) -> DomainWriteError),
            (is_empty, DomainWriteError::EmptyExpression),
            (is_too_large, DomainWriteError::TooLarge),
            (has_no_status, DomainWriteError::Answer),
        ] {
            if is_wrong {
                return Err(error(self.table.clone()));
            }
        }
        let used: BTreeSet<_> = expressions().flat_map(|expression| placeholders(expression)).collect();
        let given: BTreeSet<_> = self.names.keys().chain(self.values.keys()).map(String::as_str).collect();
        if let Some(placeholder) = used.symmetric_difference(&given).next() {
            return Err(self.placeholder(placeholder));
        }
        if !self.item.values().chain(self.values.values()).all(|value| is_storable(value, 0)) {
            return Err(self.shape(
                &"a number has more than 38 digits or is out of range, a set is empty or has an element twice, or values are \
                  nested too deeply",
            ));
        }
        Ok(())
    }
}

impl DomainWrite {
    fn check_message(&self) -> Result<(), DomainWriteError> {
        let Some((topic, body)) = self.message() else { return Err(self.unpublishable(&"it has no body")) };
        let has_condition = self.condition.is_some() || !self.names.is_empty() || !self.values.is_empty();
        for (is_wrong, reason) in [
            (!Topic::is_name(topic), "a topic's name is 1 to 128 letters, digits, `-`, `_`, `.` or `/`"),
            (escaped_length(body) > MAX_MESSAGE, "it is longer than 240 KiB"),
            (has_condition || self.if_refused != IfRefused::Fail, "a message has no condition"),
            // Also with what is around it, such as the envelopes of a queue and an event bus.
            (
                !is_readable(body),
                "its body is not JSON, is nested too deeply, or has a number that no reader takes",
            ),
        ] {
            if is_wrong {
                return Err(self.unpublishable(&reason));
            }
        }
        Ok(())
    }
}

/// How deep a message may be nested: readers take 128, with the envelopes around it.
const MAX_MESSAGE_DEPTH: usize = 100;

/// Whether every reader of JSON takes this, also with envelopes around it.
fn is_readable(body: &str) -> bool {
    fn depth(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or_default(),
            serde_json::Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
            _ => 0,
        }
    }
    serde_json::from_str(body).is_ok_and(|value| depth(&value) <= MAX_MESSAGE_DEPTH)
}

/// The length of a message once the two characters that SQS refuses are escaped.
fn escaped_length(body: &str) -> usize {
    body.len() + 3 * body.matches(['\u{FFFE}', '\u{FFFF}']).count()
}

/// Sets a placeholder; false if it has another value already.
fn set_once<T: Clone + PartialEq>(given: &mut BTreeMap<String, T>, placeholder: &str, value: T) -> bool {
    *given.entry(placeholder.to_owned()).or_insert_with(|| value.clone()) == value
}

/// Whether two tables are the same: either may be an ARN.
pub(super) fn is_same_table(table: &str, other: &str) -> bool {
    let is_named = |arn: &str, name: &str| arn.rsplit_once(":table/").is_some_and(|(_, of)| of == name);
    // Two ARNs may be in different accounts.
    table == other || is_named(table, other) || is_named(other, table)
}

/// An expression as one operand of AND.
fn grouped(expression: &str) -> String {
    let text = expression.trim();
    let mut depth = 0_u32;
    let is_group = text.starts_with('(')
        && text.char_indices().all(|(at, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            // The first parenthesis is closed by the last one.
            depth > 0 || at + 1 == text.len()
        });
    if is_group { text.to_owned() } else { format!("({text})") }
}

/// The placeholders of an expression.
fn placeholders(expression: &str) -> impl Iterator<Item = &str> {
    let tokens = expression.split(|c: char| !(c.is_ascii_alphanumeric() || "_#:".contains(c)));
    tokens.filter(|token| token.starts_with(['#', ':']))
}

/// Whether DynamoDB can store this value at this depth
/// ([limits](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html)).
fn is_storable(value: &AttributeValue, depth: usize) -> bool {
    match value {
        AttributeValue::N(text) => number(text).is_some(),
        AttributeValue::Ns(texts) => {
            let numbers: Option<Vec<_>> = texts.iter().map(|text| number(text)).collect();
            numbers.is_some_and(|numbers| is_set(numbers.iter()))
        }
        AttributeValue::Ss(texts) => is_set(texts.iter()),
        AttributeValue::Bs(values) => is_set(values.iter()),
        AttributeValue::L(elements) => {
            depth < MAX_DEPTH && elements.iter().all(|element| is_storable(element, depth + 1))
        }
        AttributeValue::M(members) => {
            depth < MAX_DEPTH && members.values().all(|member| is_storable(member, depth + 1))
        }
        _ => true,
    }
}

/// Whether these elements make a set: at least one, and none twice.
fn is_set<T: Ord>(elements: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    elements.map(|element| seen.insert(element)).reduce(|a, b| a && b) == Some(true)
}

/// The only form of a number; `None` if DynamoDB cannot store it. It stores up to 38 digits, and zero or a value between 1E-130
/// and 9.99E+125.
fn number(text: &str) -> Option<String> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    // A zero takes any exponent there, but it has to be one.
    exponent.parse::<i64>().ok()?;
    let number = Decimal::parse(text).filter(|_| mantissa.bytes().any(|byte| byte.is_ascii_digit()))?;
    let length = i64::try_from(number.digits().count()).ok()?;
    let is_storable = length <= 38
        && number.digits().all(|digit| digit.is_ascii_digit())
        && (length == 0 || (-130..=125).contains(&number.exponent.checked_add(length - 1)?));
    is_storable.then(|| number.to_string())
}

fn is_key(value: &AttributeValue) -> bool {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => !text.is_empty(),
        AttributeValue::B(bytes) => !bytes.is_empty(),
        _ => false,
    }
}
