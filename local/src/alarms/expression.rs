//! Metric math, as it is written.

use std::{iter::Peekable, str::Chars};

/// An expression of metric math.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Number(f64),
    /// The id of a metric or of another expression.
    Id(String),
    List(Vec<Expression>),
    Call(Function, Vec<Expression>),
    Binary(Operator, Box<(Expression, Expression)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    Diff,
    Fill,
    If,
    Max,
    Min,
    Sum,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Less,
    Greater,
    And,
}

/// The operators, those that bind least first. Operators of one row are read from the left.
const OPERATORS: [&[(&str, Operator)]; 4] = [
    &[("AND", Operator::And)],
    &[("<", Operator::Less), (">", Operator::Greater)],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply)],
];

#[derive(Debug, PartialEq)]
enum Token {
    Number(f64),
    Word(String),
    Sign(char),
}

impl Expression {
    /// # Errors
    /// If it has something that no template here uses.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { tokens: tokens(text)?, next: 0 };
        let parsed = reader.binary(0).map_err(|error| format!("{error} in {text:?}"))?;
        match reader.peek() {
            None => Ok(parsed),
            Some(token) => Err(format!("unknown {token:?} in {text:?}")),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut chars = text.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(&first) = chars.peek() {
        tokens.push(match first {
            ' ' => {
                chars.next();
                continue;
            }
            '0'..='9' => {
                let digits = taken(&mut chars, |char| char.is_ascii_digit() || char == '.');
                Token::Number(digits.parse().map_err(|_| format!("{digits} is no number"))?)
            }
            'a'..='z' | 'A'..='Z' => {
                Token::Word(taken(&mut chars, |char| char.is_ascii_alphanumeric() || char == '_'))
            }
            sign => {
                chars.next();
                Token::Sign(sign)
            }
        });
    }
    Ok(tokens)
}

fn taken(chars: &mut Peekable<Chars<'_>>, is_part: impl Fn(char) -> bool) -> String {
    std::iter::from_fn(|| chars.next_if(|char| is_part(*char))).collect()
}

struct Reader {
    tokens: Vec<Token>,
    next: usize,
}

impl Reader {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    /// Takes this sign, if it is the next one.
    fn takes(&mut self, sign: char) -> bool {
        let is_next = self.peek() == Some(&Token::Sign(sign));
        self.next += usize::from(is_next);
        is_next
    }

    fn needs(&mut self, sign: char) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("no {sign} but {:?}", self.peek())) }
    }

    fn operator(&mut self, level: usize) -> Option<Operator> {
        let written = match self.peek()? {
            Token::Sign(sign) => sign.to_string(),
            Token::Word(word) => word.clone(),
            Token::Number(_) => return None,
        };
        let (_, operator) = OPERATORS[level].iter().find(|(text, _)| *text == written)?;
        self.next += 1;
        Some(*operator)
    }

    /// What operators of this level, and of those that bind more, join.
    fn binary(&mut self, level: usize) -> Result<Expression, String> {
        if level == OPERATORS.len() {
            return self.operand();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(level) {
            left = Expression::Binary(operator, Box::new((left, self.binary(level + 1)?)));
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expression, String> {
        if self.takes('(') {
            let inner = self.binary(0)?;
            self.needs(')')?;
            return Ok(inner);
        }
        if self.takes('[') {
            return self.list(']').map(Expression::List);
        }
        let expression = match self.peek() {
            Some(Token::Number(number)) => Expression::Number(*number),
            // Ids begin with a small letter, functions are written in capital letters.
            Some(Token::Word(word)) if word.starts_with(|first: char| first.is_ascii_lowercase()) => {
                Expression::Id(word.clone())
            }
            Some(Token::Word(word)) => {
                let function = match word.as_str() {
                    "DIFF" => Function::Diff,
                    "FILL" => Function::Fill,
                    "IF" => Function::If,
                    "MAX" => Function::Max,
                    "MIN" => Function::Min,
                    "SUM" => Function::Sum,
                    _ => return Err(format!("unknown {word}")),
                };
                self.next += 1;
                self.needs('(')?;
                return Ok(Expression::Call(function, self.list(')')?));
            }
            other => return Err(format!("unknown {other:?}")),
        };
        self.next += 1;
        Ok(expression)
    }

    /// At least one expression, up to this sign.
    fn list(&mut self, end: char) -> Result<Vec<Expression>, String> {
        let mut list = vec![self.binary(0)?];
        while self.takes(',') {
            list.push(self.binary(0)?);
        }
        self.needs(end)?;
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_bind_as_in_arithmetic() {
        let same = |one: &str, other: &str| {
            assert_eq!(Expression::parse(one), Expression::parse(other));
            assert!(Expression::parse(one).is_ok(), "{one}");
        };
        same("a - b - c", "(a - b) - c");
        same("a + b * 2 > 0 AND c < 1", "((a + (b * 2)) > 0) AND (c < 1)");
        same("MAX([a,b])-0*a", "(MAX([a, b])) - (0 * a)");
    }

    #[test]
    fn an_unknown_expression_is_an_error() {
        for text in [
            "",
            "a b",
            "RATE(a)",
            "METRICS()",
            "FILL(a, REPEAT)",
            "a / b",
            "-a",
            "a OR b",
            "a >= b",
            "MAX([a, b)",
            "MAX(a",
            "fill(a, 0)",
            "1.2.3",
        ] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}
