//! Expressions of HCL, as far as the module has them. A text is parsed by `hcl-edit`.

use hcl_edit::{
    expr::{BinaryOperator, Expression, ObjectKey, TraversalOperator, UnaryOperator},
    structure::Body,
    template::{Directive, Element, Template},
};
use serde_json::{Map, Value, json};

use super::stack::plain;

/// What expressions may name: variables, locals, resources.
pub type Scope = Map<String, Value>;

/// The attributes of a body, without those that are null, and its blocks as lists.
pub fn body(body: &Body, scope: &Scope) -> Result<Value, String> {
    let mut all = Map::new();
    // They name types and resources, not values.
    let attributes = body.attributes().filter(|attribute| !is_address(&attribute.key, &attribute.value));
    for attribute in attributes {
        let value =
            value(&attribute.value, scope).map_err(|error| format!("{}: {error}", &*attribute.key))?;
        if !value.is_null() {
            all.insert(attribute.key.to_string(), value);
        }
    }
    for block in body.blocks() {
        let blocks = all.entry(block.ident.to_string()).or_insert_with(|| json!([]));
        let value = self::body(&block.body, scope)?;
        blocks.as_array_mut().ok_or("a block and an attribute of one name")?.push(value);
    }
    Ok(Value::Object(all))
}

fn is_address(name: &str, value: &Expression) -> bool {
    name == "depends_on" || name == "type" && matches!(value, Expression::Variable(_))
}

/// The value of an expression. Of a condition's branches, only one is evaluated.
pub fn value(expression: &Expression, scope: &Scope) -> Result<Value, String> {
    let of = |expression: &Expression| value(expression, scope);
    Ok(match expression {
        Expression::Null(_) => Value::Null,
        Expression::Bool(value) => json!(**value),
        Expression::Number(number) => match number.as_i64() {
            Some(whole) => json!(whole),
            None => json!(number.as_f64()),
        },
        Expression::String(text) => json!(**text),
        Expression::Array(values) => values.iter().map(of).collect::<Result<_, _>>()?,
        Expression::Object(members) => {
            let member = |(key, value): (&ObjectKey, &hcl_edit::expr::ObjectValue)| {
                let key = match key {
                    ObjectKey::Ident(name) => name.to_string(),
                    ObjectKey::Expression(key) => plain(&of(key)?),
                };
                Ok((key, of(value.expr())?))
            };
            Value::Object(members.iter().map(member).collect::<Result<_, String>>()?)
        }
        Expression::StringTemplate(text) => {
            let elements = text.iter().map(|element| self::element(element, scope));
            json!(elements.collect::<Result<String, _>>()?)
        }
        // Without its indentation: the parser removes it.
        Expression::HeredocTemplate(text) => json!(template(&text.template, scope)?),
        Expression::Parenthesis(inner) => of(inner.inner())?,
        Expression::Variable(name) => {
            scope.get(name.as_str()).cloned().ok_or_else(|| format!("no {name:?}"))?
        }
        Expression::Conditional(condition) => {
            let holds = truth(&of(&condition.cond_expr)?)?;
            of(if holds { &condition.true_expr } else { &condition.false_expr })?
        }
        Expression::Traversal(traversal) => {
            let mut found = of(&traversal.expr)?;
            for operator in &traversal.operators {
                found = match &**operator {
                    TraversalOperator::GetAttr(name) => found.get_mut(name.as_str()).map(Value::take),
                    TraversalOperator::Index(place) => {
                        let place = of(place)?.as_u64().and_then(|place| usize::try_from(place).ok());
                        found.get_mut(place.ok_or("no place in a list")?).map(Value::take)
                    }
                    other => return Err(format!("it is not evaluated: {other:?}")),
                }
                .ok_or_else(|| format!("there is none: {operator:?}"))?;
            }
            found
        }
        Expression::UnaryOp(operation) => match (*operation.operator, of(&operation.expr)?) {
            (UnaryOperator::Not, value) => json!(!truth(&value)?),
            (UnaryOperator::Neg, value) => json!(-value.as_i64().ok_or("no number")?),
        },
        Expression::BinaryOp(operation) => {
            let left = of(&operation.lhs_expr)?;
            match *operation.operator {
                BinaryOperator::And => json!(truth(&left)? && truth(&of(&operation.rhs_expr)?)?),
                BinaryOperator::Or => json!(truth(&left)? || truth(&of(&operation.rhs_expr)?)?),
                operator => json!(compared(operator, &left, &of(&operation.rhs_expr)?)?),
            }
        }
        Expression::FuncCall(call) => {
            let arguments = call.args.iter().map(of).collect::<Result<Vec<_>, _>>()?;
            function(&call.name.name, &arguments)?
        }
        Expression::ForExpr(_) => return Err("`for` is not evaluated".to_owned()),
    })
}

/// A text is converted, as by Terraform.
fn truth(value: &Value) -> Result<bool, String> {
    match plain(value).as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("neither true nor false: {value}")),
    }
}

fn compared(operator: BinaryOperator, left: &Value, right: &Value) -> Result<bool, String> {
    let numbers = || Ok::<_, String>((left.as_f64().ok_or("no number")?, right.as_f64().ok_or("no number")?));
    Ok(match operator {
        BinaryOperator::Eq => left == right,
        BinaryOperator::NotEq => left != right,
        BinaryOperator::GreaterEq => numbers().map(|(left, right)| left >= right)?,
        BinaryOperator::LessEq => numbers().map(|(left, right)| left <= right)?,
        other => return Err(format!("it is not evaluated: {other:?}")),
    })
}

fn template(template: &Template, scope: &Scope) -> Result<String, String> {
    template.iter().map(|element| self::element(element, scope)).collect()
}

fn element(element: &Element, scope: &Scope) -> Result<String, String> {
    match element {
        Element::Literal(text) => Ok(text.to_string()),
        Element::Interpolation(part) => value(&part.expr, scope).map(|value| plain(&value)),
        Element::Directive(directive) => match &**directive {
            Directive::If(part) if part.else_expr.is_none() => {
                let holds = truth(&value(&part.if_expr.cond_expr, scope)?)?;
                if holds { template(&part.if_expr.template, scope) } else { Ok(String::new()) }
            }
            _ => Err("only `if` without `else` is evaluated".to_owned()),
        },
    }
}

/// The functions of Terraform that the module calls.
fn function(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let list = |value: &Value| value.as_array().cloned().ok_or_else(|| format!("{name} of no list: {value}"));
    let text = |value: &Value| {
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{name} of no text: {value}"))
    };
    Ok(match (name, arguments) {
        // A document is compared by its structure, and a pattern as a text.
        ("jsonencode" | "filebase64sha256" | "regex", [first, ..]) => first.clone(),
        ("can", [_]) => json!(true),
        ("concat", lists) => json!(lists.iter().map(list).collect::<Result<Vec<_>, _>>()?.concat()),
        ("compact", [values]) => {
            let is_there = |value: &Value| !value.is_null() && *value != "";
            list(values)?.into_iter().filter(is_there).collect()
        }
        ("join", [between, values]) => {
            let texts = list(values)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            json!(texts.join(&text(between)?))
        }
        ("merge", objects) => {
            let mut all = Map::new();
            for object in objects {
                all.extend(object.as_object().cloned().ok_or("merge of no object")?);
            }
            Value::Object(all)
        }
        ("contains", [values, value]) => json!(list(values)?.contains(value)),
        ("length", [value]) => json!(text(value)?.len()),
        _ => return Err(format!("{name} is not evaluated")),
    })
}
