//! The values of a filter and how they compare.

use super::number::{double, whole};
use super::{Literal, Relation};
use std::cmp::Ordering;
use std::fmt;

/// Why a run has no result; such a message does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A text is compared with a number and is none.
    NoNumber,
    /// Two values cannot be compared.
    Incomparable,
    /// What ought to be a condition is none.
    NoCondition,
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NoNumber => "a text that is no number is compared with a number",
            Self::Incomparable => "two values cannot be compared",
            Self::NoCondition => "a condition is neither true nor false",
        })
    }
}

/// A value while a program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(&'a [u8]),
}

impl<'a> From<&'a Literal> for Value<'a> {
    fn from(literal: &'a Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(value) => Self::Bool(*value),
            Literal::Int(value) => Self::Int(*value),
            Literal::Long(value) => Self::Long(*value),
            Literal::Double(value) => Self::Double(*value),
            Literal::Text(value) => Self::Text(value),
        }
    }
}

impl Value<'_> {
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Int(value) => Self::Int(value.wrapping_neg()),
            Self::Long(value) => Self::Long(value.wrapping_neg()),
            Self::Double(value) => Self::Double(-value),
            _ => Self::Null,
        }
    }
}

/// Compares two values; null where the comparison has no answer.
pub(super) fn compare<'a>(
    relation: Relation,
    left: Value<'_>,
    right: Value<'_>,
) -> Result<Value<'a>, Fault> {
    match (left == Value::Null, right == Value::Null, relation) {
        (true, true, Relation::Equal) => return Ok(Value::Bool(true)),
        (false, true, Relation::Equal) => return Ok(Value::Bool(false)),
        (true, _, _) | (_, true, _) => return Ok(Value::Null),
        _ => {}
    }
    let order = match (left, right) {
        (Value::Text(left), Value::Text(right)) if relation != Relation::Equal => {
            by_double(double(left)?, double(right)?)
        }
        _ => order(left, right)?,
    };
    Ok(Value::Bool(match relation {
        Relation::Equal => order == Ordering::Equal,
        Relation::Greater => order == Ordering::Greater,
        Relation::GreaterOrEqual => order != Ordering::Less,
        Relation::Less => order == Ordering::Less,
        Relation::LessOrEqual => order != Ordering::Greater,
    }))
}

/// Orders two values that are not null; a text is read as what it is compared with.
#[allow(clippy::cast_precision_loss)] // As Java widens.
fn order(left: Value<'_>, right: Value<'_>) -> Result<Ordering, Fault> {
    use Value::{Bool, Double, Int, Long, Text};
    Ok(match (left, right) {
        (Text(left), Text(right)) => left.cmp(right),
        (Bool(left), Bool(right)) => left.cmp(&right),
        (Int(left), Int(right)) => left.cmp(&right),
        (Long(left), Long(right)) => left.cmp(&right),
        (Double(left), Double(right)) => by_double(left, right),
        (Int(left), Long(right)) => i64::from(left).cmp(&right),
        (Long(left), Int(right)) => left.cmp(&i64::from(right)),
        (Int(left), Double(right)) => by_double(f64::from(left), right),
        (Double(left), Int(right)) => by_double(left, f64::from(right)),
        (Long(left), Double(right)) => by_double(left as f64, right),
        (Double(left), Long(right)) => by_double(left, right as f64),
        (Text(left), Int(right)) => whole::<i32>(left)?.cmp(&right),
        (Int(left), Text(right)) => left.cmp(&whole(right)?),
        (Text(left), Long(right)) => whole::<i64>(left)?.cmp(&right),
        (Long(left), Text(right)) => left.cmp(&whole(right)?),
        (Text(left), Double(right)) => by_double(double(left)?, right),
        (Double(left), Text(right)) => by_double(left, double(right)?),
        (Text(left), Bool(right)) => left.eq_ignore_ascii_case(b"true").cmp(&right),
        (Bool(_), Text(_)) => return Err(Fault::Incomparable),
        _ => Ordering::Less,
    })
}

/// Java's order of doubles: -0.0 before 0.0, every NaN alike and behind everything.
fn by_double(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => left.total_cmp(&right),
    }
}
