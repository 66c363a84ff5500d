//! What a request of a send says, as far as it is plain: one message, of the fields of `system`.

use super::fields::{Fields, Odd, Value};

const GZIP: u64 = 2;
/// Seconds until the year 10000.
const SECONDS_MAX: u64 = 253_402_300_800;
/// The highest type of a message that its properties decide about; TRANSACTION is the next.
const LAST_PLAIN_TYPE: u64 = 3;

/// A message as its producer wrote it.
#[derive(Default)]
pub(super) struct Asked<'a> {
    pub(super) topic: &'a str,
    pub(super) properties: Vec<(&'a str, &'a str)>,
    pub(super) tag: &'a str,
    pub(super) keys: Vec<&'a str>,
    pub(super) id: &'a str,
    pub(super) is_gzip: bool,
    pub(super) born_ms: Option<u64>,
    pub(super) born_host: &'a str,
    pub(super) attempt: u64,
    pub(super) group: &'a str,
    pub(super) trace: &'a str,
    pub(super) body: &'a [u8],
}

/// Reads a request of one message.
pub(super) fn read(request: &[u8]) -> Result<Asked<'_>, Odd> {
    let mut fields = Fields(request);
    let Some((1, message)) = fields.next()? else {
        return Err(Odd);
    };
    if fields.next()?.is_some() {
        return Err(Odd);
    }
    let mut asked = Asked::default();
    let mut fields = Fields(message.bytes()?);
    let (mut topics, mut systems) = (0, 0);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => {
                topics += 1;
                asked.topic = name_of(value.bytes()?)?;
            }
            2 => asked.properties.push(entry(value.bytes()?)?),
            3 => {
                systems += 1;
                system(value.bytes()?, &mut asked)?;
            }
            4 => asked.body = value.bytes()?,
            _ => return Err(Odd),
        }
    }
    // Several of one are put together by whoever knows the definition.
    if topics != 1 || systems != 1 {
        return Err(Odd);
    }
    Ok(asked)
}

/// Reads a name that is in no namespace.
pub(super) fn name_of(resource: &[u8]) -> Result<&str, Odd> {
    let mut fields = Fields(resource);
    let Some((2, name)) = fields.next()? else {
        return Err(Odd);
    };
    if fields.next()?.is_some() {
        return Err(Odd);
    }
    name.text()
}

fn entry(data: &[u8]) -> Result<(&str, &str), Odd> {
    let (mut name, mut text) = ("", "");
    let mut fields = Fields(data);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => name = value.text()?,
            2 => text = value.text()?,
            _ => return Err(Odd),
        }
    }
    Ok((name, text))
}

/// Reads what a message says of itself. Fields that mean nothing for a send are passed over.
fn system<'a>(data: &'a [u8], asked: &mut Asked<'a>) -> Result<(), Odd> {
    let mut fields = Fields(data);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => asked.tag = value.text()?,
            2 => asked.keys.push(value.text()?),
            3 => asked.id = value.text()?,
            4 => digest(value.bytes()?)?,
            5 => asked.is_gzip = small(value, GZIP)? == GZIP,
            6 => drop(small(value, LAST_PLAIN_TYPE)?),
            7 if asked.born_ms.is_none() => asked.born_ms = Some(millis(value.bytes()?)?),
            8 => asked.born_host = value.text()?,
            16 => asked.attempt = small(value, i32::MAX as u64)?,
            17 => asked.group = value.text()?,
            18 => asked.trace = value.text()?,
            // What a broker says of a message that it stores.
            13 | 14 => drop(value.number()?),
            _ => return Err(Odd),
        }
    }
    Ok(())
}

/// Passes over a digest, which is the consumer's to check. It has to be one, as for whoever knows the
/// definition: it is the only message of a plain send of which nothing is used.
fn digest(data: &[u8]) -> Result<(), Odd> {
    let mut fields = Fields(data);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => drop(value.number()?),
            2 => drop(value.text()?),
            _ => return Err(Odd),
        }
    }
    Ok(())
}

fn small(value: Value<'_>, most: u64) -> Result<u64, Odd> {
    value
        .number()
        .and_then(|number| if number <= most { Ok(number) } else { Err(Odd) })
}

fn millis(timestamp: &[u8]) -> Result<u64, Odd> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Fields(timestamp);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => seconds = small(value, SECONDS_MAX - 1)?,
            2 => nanos = small(value, 999_999_999)?,
            _ => return Err(Odd),
        }
    }
    Ok(seconds * 1000 + nanos / 1_000_000)
}
