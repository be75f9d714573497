//! The part of DynamoDB's expressions that the store in memory knows.
//!
//! Conditions: comparisons, `BETWEEN`, `AND`, `OR`, `NOT`, parentheses, `attribute_exists`, `attribute_not_exists`, `begins_with`.
//! Updates: `SET` with `+`, `-` and `if_not_exists`, `REMOVE`, and `ADD` of a number. Paths are attributes, not parts of
//! documents. Everything else is refused, never guessed.

use std::{
    cmp::Ordering::{self, Equal},
    collections::HashSet,
    iter::Peekable,
    vec,
};

use serde_dynamo::{AttributeValue, Item};

use super::reserved::is_reserved;
use crate::domain::DomainWrite;

/// Why an expression is refused: it is malformed, or not one of those above.
pub(super) type Refused = String;

/// Whether `item` meets the write's condition. A write without a condition always applies.
pub(super) fn holds(write: &DomainWrite, item: Option<&Item>) -> Result<bool, Refused> {
    let Some(condition) = &write.condition else { return Ok(true) };
    let mut parser = Parser::new(write, item, condition);
    let holds = parser.any_of()?;
    match parser.tokens.next() {
        None => Ok(holds),
        Some(rest) => Err(format!("{rest:?} is not expected")),
    }
}

/// `item` as this update expression changes it. If there is no item, the update begins with the write's key.
pub(super) fn updated(write: &DomainWrite, expression: &str, item: Option<&Item>) -> Result<Item, Refused> {
    let mut parser = Parser::new(write, item, expression);
    let mut next = item.unwrap_or(&write.item).clone();
    let (mut clauses, mut changed) = (HashSet::new(), HashSet::new());
    while let Some(clause) = parser.tokens.next() {
        let clause = clause.to_ascii_uppercase();
        loop {
            let token = parser.next();
            let name = parser.attribute(token)?;
            if write.is_key(name) {
                return Err(format!("{name:?} is part of the key"));
            }
            if !changed.insert(name) {
                return Err(format!("{name:?} is changed twice"));
            }
            match parser.change(&clause, name)? {
                Some(value) => next.inner_mut().insert(name.to_owned(), value),
                None => next.inner_mut().remove(name),
            };
            if !parser.takes(",") {
                break;
            }
        }
        if !clauses.insert(clause) {
            return Err("an update has two clauses of one kind".to_owned());
        }
    }
    Ok(next)
}

/// Reads an expression from left to right, and evaluates it.
struct Parser<'a> {
    tokens: Peekable<vec::IntoIter<&'a str>>,
    write: &'a DomainWrite,
    item: Option<&'a Item>,
}

/// An attribute of the item, or the value of a placeholder; `None` if the item has no such attribute.
type Operand<'a> = Option<&'a AttributeValue>;

impl<'a> Parser<'a> {
    fn new(write: &'a DomainWrite, item: Option<&'a Item>, text: &'a str) -> Self {
        Self { tokens: tokens(text).into_iter().peekable(), write, item }
    }

    /// The next token; empty at the end.
    fn next(&mut self) -> &'a str {
        self.tokens.next().unwrap_or_default()
    }

    fn takes(&mut self, token: &str) -> bool {
        self.tokens.next_if(|next| next.eq_ignore_ascii_case(token)).is_some()
    }

    fn needs(&mut self, token: &str) -> Result<(), Refused> {
        if self.takes(token) {
            return Ok(());
        }
        Err(format!("{token:?} is missing before {:?}", self.tokens.peek()))
    }

    fn any_of(&mut self) -> Result<bool, Refused> {
        let mut holds = self.all_of()?;
        while self.takes("OR") {
            holds |= self.all_of()?;
        }
        Ok(holds)
    }

    fn all_of(&mut self) -> Result<bool, Refused> {
        let mut holds = self.one()?;
        while self.takes("AND") {
            holds &= self.one()?;
        }
        Ok(holds)
    }

    fn one(&mut self) -> Result<bool, Refused> {
        // Keywords may be in lower case, functions may not.
        match self.next() {
            not if not.eq_ignore_ascii_case("NOT") => Ok(!self.one()?),
            "(" if self.only_a_group_follows() => Err("a pair of parentheses is redundant".to_owned()),
            "(" => {
                let holds = self.any_of()?;
                self.needs(")")?;
                Ok(holds)
            }
            "attribute_exists" => self.arguments().map(|[attribute]| attribute.is_some()),
            "attribute_not_exists" => self.arguments().map(|[attribute]| attribute.is_none()),
            "begins_with" => match self.arguments()? {
                [Some(AttributeValue::S(text)), Some(AttributeValue::S(beginning))] => {
                    Ok(text.starts_with(beginning))
                }
                [None, Some(AttributeValue::S(_))] => Ok(false),
                _ => Err("the store in memory knows begins_with for strings only".to_owned()),
            },
            left => {
                let left = self.named(left)?;
                let operator = self.next().to_ascii_uppercase();
                let right = self.operand()?;
                if operator != "BETWEEN" {
                    return compares(&operator, left, right);
                }
                self.needs("AND")?;
                let upper = self.operand()?;
                Ok(compares(">=", left, right)? && compares("<=", left, upper)?)
            }
        }
    }

    /// Whether the parenthesis just opened contains only another pair of parentheses.
    fn only_a_group_follows(&self) -> bool {
        let (mut tokens, mut depth) = (self.tokens.clone(), 0);
        let end = tokens.find(|token| {
            depth += i32::from(*token == "(") - i32::from(*token == ")");
            depth == 0
        });
        end == Some(")") && tokens.next() == Some(")")
    }

    /// The arguments of a function.
    fn arguments<const N: usize>(&mut self) -> Result<[Operand<'a>; N], Refused> {
        let mut arguments = [None; N];
        for (place, argument) in arguments.iter_mut().enumerate() {
            self.needs(if place == 0 { "(" } else { "," })?;
            *argument = self.operand()?;
        }
        self.needs(")")?;
        Ok(arguments)
    }

    fn operand(&mut self) -> Result<Operand<'a>, Refused> {
        let token = self.next();
        self.named(token)
    }

    /// The operand that this token names.
    fn named(&self, token: &'a str) -> Result<Operand<'a>, Refused> {
        if token.starts_with(':') {
            return self.write.values.get(token).map(Some).ok_or_else(|| format!("{token} has no value"));
        }
        let name = self.attribute(token)?;
        Ok(self.item.and_then(|item| item.get(name)))
    }

    /// The name of the attribute that this token names.
    fn attribute(&self, token: &'a str) -> Result<&'a str, Refused> {
        if token.starts_with('#') {
            let name = self.write.names.get(token).map(String::as_str);
            return name.ok_or_else(|| format!("{token} has no name"));
        }
        let plain = token.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain || !token.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(format!("{token:?} is not an attribute"));
        }
        if is_reserved(token) {
            return Err(format!(
                "{token:?} is a reserved word; use a placeholder, such as name(\"#{token}\", \"{token}\")"
            ));
        }
        Ok(token)
    }

    /// The new value of this attribute; `None` if it is removed.
    fn change(&mut self, clause: &str, name: &str) -> Result<Option<AttributeValue>, Refused> {
        match clause {
            "SET" => {
                self.needs("=")?;
                let first = self.term()?;
                // One operator at most, as in DynamoDB.
                for operator in ["+", "-"] {
                    if self.takes(operator) {
                        return sum(first, self.term()?, operator == "-").map(Some);
                    }
                }
                Ok(Some(first.clone()))
            }
            "ADD" if self.tokens.peek().is_some_and(|token| token.starts_with(':')) => {
                let (zero, added) = (AttributeValue::N("0".to_owned()), self.term()?);
                let current = self.item.and_then(|item| item.get(name));
                sum(current.unwrap_or(&zero), added, false).map(Some)
            }
            "ADD" => Err("ADD needs a value".to_owned()),
            "REMOVE" => Ok(None),
            other => Err(format!("the store in memory does not know {other:?}")),
        }
    }

    /// An operand that must exist.
    fn term(&mut self) -> Result<&'a AttributeValue, Refused> {
        let operand = match self.next() {
            "if_not_exists" => self.arguments().map(|[current, other]| current.or(other))?,
            token => self.named(token)?,
        };
        operand.ok_or_else(|| "the item does not have an attribute of the expression".to_owned())
    }
}

/// Words, comparison operators and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let ends_word = |c: char| !(c.is_ascii_alphanumeric() || "_#:.".contains(c));
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = match rest.find(ends_word) {
            Some(0) if ["<=", ">=", "<>"].iter().any(|operator| rest.starts_with(operator)) => 2,
            Some(0) => first.len_utf8(),
            length => length.unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn compares(operator: &str, left: Operand<'_>, right: Operand<'_>) -> Result<bool, Refused> {
    let ordering = left.zip(right).and_then(|(left, right)| order(left, right));
    let same = ordering == Some(Equal) || left == right;
    match operator {
        "=" => Ok(same && left.is_some()),
        "<>" => Ok(!same),
        "<" => Ok(ordering.is_some_and(Ordering::is_lt)),
        "<=" => Ok(ordering.is_some_and(Ordering::is_le)),
        ">" => Ok(ordering.is_some_and(Ordering::is_gt)),
        ">=" => Ok(ordering.is_some_and(Ordering::is_ge)),
        other => Err(format!("the store in memory does not know {other:?}")),
    }
}

fn order(left: &AttributeValue, right: &AttributeValue) -> Option<Ordering> {
    match (left, right) {
        (AttributeValue::N(left), AttributeValue::N(right)) => match (left.parse(), right.parse()) {
            (Ok(left), Ok(right)) => Some(i128::cmp(&left, &right)),
            _ => left.parse::<f64>().ok()?.partial_cmp(&right.parse().ok()?),
        },
        (AttributeValue::S(left), AttributeValue::S(right)) => Some(left.cmp(right)),
        (AttributeValue::B(left), AttributeValue::B(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// The sum of whole numbers. Fractions would be rounded, unlike in DynamoDB.
fn sum(left: &AttributeValue, right: &AttributeValue, minus: bool) -> Result<AttributeValue, Refused> {
    let number = |value: &AttributeValue| match value {
        AttributeValue::N(digits) => digits.parse::<i128>().ok(),
        _ => None,
    };
    let (left, right) =
        number(left).zip(number(right)).ok_or("the store in memory adds whole numbers only")?;
    let sum = if minus { left.checked_sub(right) } else { left.checked_add(right) };
    sum.map(|sum| AttributeValue::N(sum.to_string())).ok_or_else(|| "the number is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::Table;

    fn item() -> Item {
        serde_dynamo::to_item(json!({ "id": "a", "cents": 500, "owner_name": "Ann", "status": "open" }))
            .unwrap()
    }

    fn write() -> DomainWrite {
        Table::new("accounts", "id")
            .update(json!({ "id": "a" }), "")
            .value(":cents", 500)
            .value(":one", 1)
            .value(":name", "Ann")
            .name("#status", "status")
    }

    #[test]
    fn conditions_hold_as_in_dynamodb() {
        for (condition, expected) in [
            ("cents >= :cents", true),
            ("cents>:cents", false),
            ("cents = :cents AND owner_name = :name", true),
            ("cents <> :cents OR begins_with(owner_name, :name)", true),
            ("NOT (cents < :cents)", true),
            ("((cents = :cents) OR (owner_name = :name)) AND (cents = :cents)", true),
            ("cents BETWEEN :one AND :cents", true),
            ("attribute_exists(#status) and attribute_not_exists(gone)", true),
            ("gone = :one", false),
            ("gone <> :one", true),
            ("gone < :one", false),
            ("owner_name = :one", false),
        ] {
            assert_eq!(holds(&write().condition(condition), Some(&item())), Ok(expected), "{condition}");
        }
        let absent = write().condition("attribute_not_exists(id)");
        assert_eq!((holds(&absent, None), holds(&write(), None)), (Ok(true), Ok(true)));
    }

    #[test]
    fn an_unsupported_expression_is_refused() {
        for condition in [
            "size(owner_name) > :one",
            "status = :name",
            "1st = :one",
            "_cents = :one",
            "cents",
            "cents = :none",
            "#none = :one",
            "a.b = :one",
            "(cents = :cents",
            "cents = :cents x",
            "((cents = :cents))",
            "((cents = :cents) OR (owner_name = :name)) AND ((cents = :cents))",
            "Attribute_Exists(id)",
            "begins_with(cents, :one)",
        ] {
            assert!(holds(&write().condition(condition), Some(&item())).is_err(), "{condition}");
        }
        for update in [
            "DELETE names :name",
            "SET status = :name",
            "REMOVE Count",
            "SET cents = gone + :one",
            "SET a.b = :one",
            "SET cents = owner_name + :one",
            "cents = :one",
            "SET cents = cents + :one - :one",
            "SET cents = :one SET owner_name = :name",
            "ADD cents cents",
        ] {
            assert!(updated(&write(), update, Some(&item())).is_err(), "{update}");
        }
    }

    #[test]
    fn an_update_changes_only_the_attributes_that_it_names() {
        let updated =
            |text| serde_dynamo::from_item(updated(&write(), text, Some(&item())).unwrap()).unwrap();
        let changed: serde_json::Value = updated(
            "SET cents = cents - :one, seen = if_not_exists(seen, :cents), #status = :name REMOVE owner_name ADD times :one",
        );
        assert_eq!(changed, json!({ "id": "a", "cents": 499, "seen": 500, "status": "Ann", "times": 1 }));
        let created = super::updated(&write(), "ADD cents :cents", None).unwrap();
        let created: serde_json::Value = serde_dynamo::from_item(created).unwrap();
        assert_eq!(created, json!({ "id": "a", "cents": 500 }));
    }
}
