//! The part of DynamoDB's expressions that the store in memory knows.
//!
//! Conditions: comparisons, `BETWEEN`, `AND`, `OR`, `NOT`, parentheses, `attribute_exists`, `attribute_not_exists`, `begins_with`.
//! Updates: `SET` with `+`, `-` and `if_not_exists`, `REMOVE`, and `ADD` of a number. Paths are attributes, not parts of
//! documents. Everything else is refused, never guessed.

use std::{cmp::Ordering, collections::HashSet, iter::Peekable, vec};

use serde_dynamo::{AttributeValue, Item};

use crate::domain::DomainWrite;

/// Why an expression is refused: it is malformed, or not one of those above.
pub(super) type Refused = String;

/// Whether `item` meets the write's condition. A write without one always applies.
pub(super) fn holds(write: &DomainWrite, item: Option<&Item>) -> Result<bool, Refused> {
    let Some(condition) = &write.condition else { return Ok(true) };
    let mut parser = Parser::new(write, item, condition);
    let holds = parser.any_of()?;
    parser.end()?;
    Ok(holds)
}

/// `item` as this update expression changes it; the write's key alone if there is none.
pub(super) fn updated(write: &DomainWrite, expression: &str, item: Option<&Item>) -> Result<Item, Refused> {
    let mut next = item.unwrap_or(&write.item).clone();
    let mut parser = Parser::new(write, item, expression);
    let mut clauses = HashSet::new();
    while let Some(clause) = parser.next() {
        let clause = clause.to_ascii_uppercase();
        if !clauses.insert(clause.clone()) {
            return Err(format!("{clause} is there twice"));
        }
        loop {
            parser.change(&clause, &mut next)?;
            if !parser.takes(",") {
                break;
            }
        }
    }
    Ok(next)
}

struct Parser<'a> {
    tokens: Peekable<vec::IntoIter<String>>,
    write: &'a DomainWrite,
    item: Option<&'a Item>,
    /// The attributes that the update has changed so far.
    changed: HashSet<String>,
}

impl<'a> Parser<'a> {
    fn new(write: &'a DomainWrite, item: Option<&'a Item>, text: &str) -> Self {
        Self { tokens: tokens(text).into_iter().peekable(), write, item, changed: HashSet::new() }
    }

    fn next(&mut self) -> Option<String> {
        self.tokens.next()
    }

    fn takes(&mut self, token: &str) -> bool {
        self.tokens.next_if(|next| next.eq_ignore_ascii_case(token)).is_some()
    }

    /// Unlike keywords, functions are written in one way only.
    fn takes_function(&mut self, name: &str) -> bool {
        self.tokens.next_if(|next| next == name).is_some()
    }

    /// Whether, after an opening parenthesis, there is nothing but another pair up to its end.
    fn group_follows_alone(&self) -> bool {
        let (mut tokens, mut depth) = (self.tokens.clone(), 0_u32);
        while let Some(token) = tokens.next() {
            match &*token {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return token == ")" && tokens.next().as_deref() == Some(")");
            }
        }
        false
    }

    fn needs(&mut self, token: &str) -> Result<(), Refused> {
        if self.takes(token) {
            Ok(())
        } else {
            Err(format!("{token:?} is missing before {:?}", self.tokens.peek()))
        }
    }

    fn end(&mut self) -> Result<(), Refused> {
        self.next().map_or(Ok(()), |rest| Err(format!("{rest:?} is not expected")))
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
        if self.takes("NOT") {
            return Ok(!self.one()?);
        }
        if self.takes("(") {
            if self.group_follows_alone() {
                return Err("a pair of parentheses is redundant".to_owned());
            }
            let holds = self.any_of()?;
            self.needs(")")?;
            return Ok(holds);
        }
        for function in ["attribute_exists", "attribute_not_exists"] {
            if self.takes_function(function) {
                self.needs("(")?;
                let current = self.operand()?.is_some();
                self.needs(")")?;
                return Ok(current == (function == "attribute_exists"));
            }
        }
        if self.takes_function("begins_with") {
            self.needs("(")?;
            let text = self.operand()?;
            self.needs(",")?;
            let beginning = self.operand()?;
            self.needs(")")?;
            return match (text, beginning) {
                (Some(AttributeValue::S(text)), Some(AttributeValue::S(beginning))) => {
                    Ok(text.starts_with(&beginning))
                }
                (None, Some(AttributeValue::S(_))) => Ok(false),
                _ => Err("the store in memory knows begins_with for strings only".to_owned()),
            };
        }
        let left = self.operand()?;
        let operator = self.next().unwrap_or_default().to_ascii_uppercase();
        let right = self.operand()?;
        if operator == "BETWEEN" {
            self.needs("AND")?;
            let upper = self.operand()?;
            return Ok(compares(">=", left.as_ref(), right.as_ref())?
                && compares("<=", left.as_ref(), upper.as_ref())?);
        }
        compares(&operator, left.as_ref(), right.as_ref())
    }

    /// An attribute of the item, or a value; `None` if the item has no such attribute.
    fn operand(&mut self) -> Result<Option<AttributeValue>, Refused> {
        let token = self.next().unwrap_or_default();
        if token.starts_with(':') {
            let value = self.write.values.get(&token).cloned();
            return value.map(Some).ok_or_else(|| format!("{token} has no value"));
        }
        let name = self.named(&token)?;
        Ok(self.item.and_then(|item| item.get(&name)).cloned())
    }

    fn name(&mut self) -> Result<String, Refused> {
        let token = self.next().unwrap_or_default();
        self.named(&token)
    }

    /// The attribute that this token names.
    fn named(&self, token: &str) -> Result<String, Refused> {
        if token.starts_with('#') {
            return self.write.names.get(token).cloned().ok_or_else(|| format!("{token} has no name"));
        }
        let plain = token.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if plain && !token.is_empty() {
            Ok(token.to_owned())
        } else {
            Err(format!("{token:?} is not an attribute"))
        }
    }

    /// One change of an update expression's clause.
    fn change(&mut self, clause: &str, next: &mut Item) -> Result<(), Refused> {
        let name = self.name()?;
        if self.write.is_key(&name) {
            return Err(format!("{name:?} is part of the key"));
        }
        if !self.changed.insert(name.clone()) {
            return Err(format!("{name:?} is changed twice"));
        }
        let value = match clause {
            "SET" => {
                self.needs("=")?;
                let mut value = self.term()?;
                // At most one: DynamoDB takes no longer sums.
                for operator in ["+", "-"] {
                    if self.takes(operator) {
                        let other = self.term()?;
                        value = sum(&value, &other, operator == "-")?;
                        break;
                    }
                }
                value
            }
            "ADD" => {
                let current = self.item.and_then(|item| item.get(&name)).cloned();
                if !self.tokens.peek().is_some_and(|token| token.starts_with(':')) {
                    return Err("ADD needs a value".to_owned());
                }
                let added = self.term()?;
                sum(&current.unwrap_or_else(|| AttributeValue::N("0".to_owned())), &added, false)?
            }
            "REMOVE" => {
                next.inner_mut().remove(&name);
                return Ok(());
            }
            other => return Err(format!("the store in memory does not know {other:?}")),
        };
        next.inner_mut().insert(name, value);
        Ok(())
    }

    /// A value that must be there.
    fn term(&mut self) -> Result<AttributeValue, Refused> {
        if self.takes_function("if_not_exists") {
            self.needs("(")?;
            let current = self.operand()?;
            self.needs(",")?;
            let other = self.operand()?;
            self.needs(")")?;
            return current.or(other).ok_or_else(missing);
        }
        self.operand()?.ok_or_else(missing)
    }
}

fn missing() -> Refused {
    "the item does not have an attribute of the expression".to_owned()
}

fn tokens(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_#:.".contains(c);
    let mut tokens: Vec<String> = Vec::new();
    let mut joins = false;
    for c in text.chars() {
        let pairs =
            matches!((tokens.last().map(String::as_str), c), (Some("<"), '=' | '>') | (Some(">"), '='));
        match tokens.last_mut() {
            Some(last) if joins && (pairs || is_word(c) && last.chars().all(is_word)) => last.push(c),
            _ if c.is_whitespace() => {}
            _ => tokens.push(c.to_string()),
        }
        joins = !c.is_whitespace();
    }
    tokens
}

fn compares(
    operator: &str,
    left: Option<&AttributeValue>,
    right: Option<&AttributeValue>,
) -> Result<bool, Refused> {
    let ordering = left.zip(right).and_then(|(left, right)| order(left, right));
    Ok(match operator {
        "=" => ordering == Some(Ordering::Equal) || (left.is_some() && left == right),
        "<>" => ordering != Some(Ordering::Equal) && left != right,
        "<" => ordering == Some(Ordering::Less),
        "<=" => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        ">" => ordering == Some(Ordering::Greater),
        ">=" => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
        other => return Err(format!("the store in memory does not know {other:?}")),
    })
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

/// In whole numbers: fractions would be rounded as DynamoDB does not.
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
        serde_dynamo::to_item(json!({ "id": "a", "cents": 500, "name": "Ann", "status": "open" })).unwrap()
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
    fn conditions_hold_as_dynamodb_says() {
        for (condition, expected) in [
            ("cents >= :cents", true),
            ("cents>:cents", false),
            ("cents = :cents AND name = :name", true),
            ("cents <> :cents OR begins_with(name, :name)", true),
            ("NOT (cents < :cents)", true),
            ("((cents = :cents) OR (name = :name)) AND (cents = :cents)", true),
            ("cents BETWEEN :one AND :cents", true),
            ("attribute_exists(#status) and attribute_not_exists(gone)", true),
            ("gone = :one", false),
            ("gone <> :one", true),
            ("gone < :one", false),
            ("name = :one", false),
        ] {
            assert_eq!(holds(&write().condition(condition), Some(&item())), Ok(expected), "{condition}");
        }
        let absent = write().condition("attribute_not_exists(id)");
        assert_eq!((holds(&absent, None), holds(&write(), None)), (Ok(true), Ok(true)));
    }

    #[test]
    fn what_it_does_not_know_is_refused_and_never_guessed() {
        for condition in [
            "size(name) > :one",
            "cents",
            "cents = :none",
            "#none = :one",
            "a.b = :one",
            "(cents = :cents",
            "cents = :cents x",
            "((cents = :cents))",
            "((cents = :cents) OR (name = :name)) AND ((cents = :cents))",
            "Attribute_Exists(id)",
            "begins_with(cents, :one)",
        ] {
            assert!(holds(&write().condition(condition), Some(&item())).is_err(), "{condition}");
        }
        for update in [
            "DELETE names :name",
            "SET cents = gone + :one",
            "SET a.b = :one",
            "SET cents = name + :one",
            "cents = :one",
            "SET cents = cents + :one - :one",
            "SET cents = :one SET name = :name",
            "ADD cents cents",
        ] {
            assert!(updated(&write(), update, Some(&item())).is_err(), "{update}");
        }
    }

    #[test]
    fn updates_change_what_they_name_and_nothing_else() {
        let updated =
            |text| serde_dynamo::from_item(updated(&write(), text, Some(&item())).unwrap()).unwrap();
        let changed: serde_json::Value = updated(
            "SET cents = cents - :one, seen = if_not_exists(seen, :cents), #status = :name REMOVE name ADD count :one",
        );
        assert_eq!(changed, json!({ "id": "a", "cents": 499, "seen": 500, "status": "Ann", "count": 1 }));
        let created = super::updated(&write(), "ADD cents :cents", None).unwrap();
        let created: serde_json::Value = serde_dynamo::from_item(created).unwrap();
        assert_eq!(created, json!({ "id": "a", "cents": 500 }));
    }
}
