//! SQL92 filters as small checked programs, run on the raw properties of a message.
//!
//! Python parses an expression and writes it as a list of steps, each of which names earlier steps
//! as its operands; the last one is the result. `Program::new` checks the list once, so that a run
//! can neither loop nor go deep. Values and comparisons are those of Java's filter (spec: wire §17.2).

mod number;
mod value;

use crate::codec::properties;
use std::cell::Cell;
use std::collections::HashMap;
use value::{compare, Fault, Value};

/// Most steps of a program.
pub const STEPS_MAX: usize = 512;
/// Deepest nesting of operands.
pub const DEPTH_MAX: usize = 64;

/// A literal of the expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// NULL.
    Null,
    /// TRUE or FALSE.
    Bool(bool),
    /// A whole number that fits 32 bits.
    Int(i32),
    /// Any other whole number.
    Long(i64),
    /// A number with a point or an exponent.
    Double(f64),
    /// A text.
    Text(Box<[u8]>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `=`; of two nulls, too.
    Equal,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
}

/// Where in a text another one is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// CONTAINS.
    Anywhere,
    /// STARTSWITH.
    Start,
    /// ENDSWITH.
    End,
}

/// One step; operands are indexes of earlier steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A literal.
    Literal(Literal),
    /// The value of a property, null when the message lacks it.
    Property(Box<[u8]>),
    /// Three-valued NOT.
    Not(usize),
    /// A property read as a condition.
    Cast(usize),
    /// The number with the other sign; null for what is no number.
    Negate(usize),
    /// Three-valued AND; the right side is not looked at when the left one decides.
    And(usize, usize),
    /// Three-valued OR, likewise.
    Or(usize, usize),
    /// A comparison.
    Compare(Relation, usize, usize),
    /// Whether a text has another one in it; `true` at the end turns the answer round.
    Search(Place, usize, Box<[u8]>, bool),
    /// Whether a property is one of some texts; `true` at the end turns the answer round.
    In(usize, Box<[Box<[u8]>]>, bool),
}

impl Step {
    fn operands(&self) -> (Option<usize>, Option<usize>) {
        match self {
            Self::Literal(_) | Self::Property(_) => (None, None),
            Self::Not(one)
            | Self::Cast(one)
            | Self::Negate(one)
            | Self::Search(_, one, ..)
            | Self::In(one, ..) => (Some(*one), None),
            Self::And(left, right) | Self::Or(left, right) | Self::Compare(_, left, right) => {
                (Some(*left), Some(*right))
            }
        }
    }
}

/// A checked program.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Box<[Step]>,
}

impl Program {
    /// Checks that every operand is an earlier step and that no limit is passed.
    pub fn new(steps: Vec<Step>) -> Result<Self, String> {
        if steps.is_empty() || steps.len() > STEPS_MAX {
            return Err(format!("a filter has 1 to {STEPS_MAX} steps"));
        }
        let mut depths: Vec<usize> = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let mut depth = 0;
            let (one, other) = step.operands();
            for operand in [one, other].into_iter().flatten() {
                let below = depths
                    .get(operand)
                    .ok_or_else(|| format!("step {at} uses step {operand}"))?;
                depth = depth.max(below + 1);
            }
            if depth > DEPTH_MAX {
                return Err(format!("a filter is nested at most {DEPTH_MAX} deep"));
            }
            depths.push(depth);
        }
        Ok(Self {
            steps: steps.into_boxed_slice(),
        })
    }

    /// Runs on the properties of a message: true, false, or null; `Err` where Java would throw.
    pub fn evaluate(&self, properties: &[u8]) -> Result<Option<bool>, Fault> {
        match self.run(self.steps.len() - 1, &Looked::at(properties))? {
            Value::Null => Ok(None),
            Value::Bool(result) => Ok(Some(result)),
            _ => Err(Fault::NoCondition),
        }
    }

    /// Whether the message matches: null and faults do not.
    #[must_use]
    pub fn matches(&self, properties: &[u8]) -> bool {
        matches!(self.evaluate(properties), Ok(Some(true)))
    }

    /// The value of an operand. What has no operands itself is read on the spot: most operands are
    /// such, and a value that is handed back through memory costs more than finding it.
    #[inline]
    fn operand<'a>(&'a self, at: usize, looked: &Looked<'a>) -> Result<Value<'a>, Fault> {
        match self.steps.get(at) {
            Some(Step::Literal(literal)) => Ok(Value::from(literal)),
            Some(Step::Property(name)) => Ok(looked.property(name)),
            _ => self.run(at, looked),
        }
    }

    fn run<'a>(&'a self, at: usize, looked: &Looked<'a>) -> Result<Value<'a>, Fault> {
        // `new` has checked every index.
        let Some(step) = self.steps.get(at) else {
            return Ok(Value::Null);
        };
        Ok(match step {
            Step::Literal(literal) => Value::from(literal),
            Step::Property(name) => looked.property(name),
            Step::Not(one) => match self.condition(*one, looked)? {
                Some(result) => Value::Bool(!result),
                None => Value::Null,
            },
            Step::Cast(one) => match self.operand(*one, looked)? {
                null @ Value::Null => null,
                Value::Bool(result) => Value::Bool(result),
                _ => Value::Bool(false),
            },
            Step::Negate(one) => self.run(*one, looked)?.negated(),
            Step::And(left, right) => self.joined(*left, *right, looked, false)?,
            Step::Or(left, right) => self.joined(*left, *right, looked, true)?,
            Step::Compare(relation, left, right) => {
                let left = self.operand(*left, looked)?;
                if left == Value::Null && *relation != Relation::Equal {
                    return Ok(Value::Null);
                }
                compare(*relation, left, self.operand(*right, looked)?)?
            }
            Step::Search(place, one, wanted, not) => match self.operand(*one, looked)? {
                Value::Text(text) if !wanted.is_empty() => {
                    Value::Bool(has(*place, text, wanted) != *not)
                }
                _ => Value::Bool(false),
            },
            Step::In(one, wanted, not) => match self.operand(*one, looked)? {
                Value::Text(text) => Value::Bool(wanted.iter().any(|one| **one == *text) != *not),
                _ => Value::Null,
            },
        })
    }

    /// AND and OR: one side equal to `decides` is the result.
    fn joined<'a>(
        &'a self,
        left: usize,
        right: usize,
        looked: &Looked<'a>,
        decides: bool,
    ) -> Result<Value<'a>, Fault> {
        let left = self.condition(left, looked)?;
        if left == Some(decides) {
            return Ok(Value::Bool(decides));
        }
        let right = self.condition(right, looked)?;
        Ok(match (left, right) {
            (_, Some(right)) if right == decides => Value::Bool(decides),
            (Some(_), Some(_)) => Value::Bool(!decides),
            _ => Value::Null,
        })
    }

    fn condition<'a>(&'a self, at: usize, looked: &Looked<'a>) -> Result<Option<bool>, Fault> {
        match self.run(at, looked)? {
            Value::Null => Ok(None),
            Value::Bool(result) => Ok(Some(result)),
            _ => Err(Fault::NoCondition),
        }
    }
}

/// The properties of one message, and the one that was asked for last: BETWEEN and ranges ask twice.
struct Looked<'a> {
    properties: &'a [u8],
    last: Cell<(&'a [u8], Value<'a>)>,
}

impl<'a> Looked<'a> {
    fn at(properties: &'a [u8]) -> Self {
        // Nothing has an empty name.
        let last = Cell::new((Default::default(), Value::Null));
        Self { properties, last }
    }

    #[inline]
    fn property(&self, name: &'a [u8]) -> Value<'a> {
        let (last, value) = self.last.get();
        if last == name {
            return value;
        }
        let found = properties::find(self.properties, name).map_or(Value::Null, Value::Text);
        self.last.set((name, found));
        found
    }
}

fn has(place: Place, text: &[u8], wanted: &[u8]) -> bool {
    match place {
        Place::Start => text.starts_with(wanted),
        Place::End => text.ends_with(wanted),
        Place::Anywhere => memchr::memmem::find(text, wanted).is_some(),
    }
}

/// What a reader asks of each message.
#[derive(Clone, Debug)]
pub enum Filter {
    /// One program for every message.
    All(Program),
    /// Messages of a retry topic: the program of the topic that each came from, if it has one.
    ByOrigin(HashMap<Box<[u8]>, Program>),
}

impl Filter {
    /// Whether the message with these properties is wanted.
    #[must_use]
    pub fn matches(&self, properties: &[u8]) -> bool {
        match self {
            Self::All(program) => program.matches(properties),
            Self::ByOrigin(programs) => properties::find(properties, properties::RETRY_TOPIC)
                .and_then(|origin| programs.get(origin))
                .is_none_or(|program| program.matches(properties)),
        }
    }
}
