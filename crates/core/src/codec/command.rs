//! What a frame's header says, whichever of the two encodings it came in (spec: wire §3-4).

use std::borrow::Cow;

/// Names of the languages in the order of their binary codes (spec: wire §3.3).
pub const LANGUAGES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
];
/// Code of JAVA: what a header without a language means.
pub const JAVA: u8 = 0;
/// Code of OTHER: what an unknown language becomes.
pub const OTHER: u8 = 7;

/// Flag bit: the frame answers a request.
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit: no answer is wanted.
pub const FLAG_ONE_WAY: i32 = 2;

/// How a header is written: the frame's serializeType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON object.
    Json,
    /// Java's "ROCKETMQ" form.
    Binary,
}

impl Encoding {
    /// The encoding of a serializeType byte.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Json),
            1 => Some(Self::Binary),
            _ => None,
        }
    }

    /// The serializeType byte.
    pub fn code(self) -> u8 {
        match self {
            Self::Json => 0,
            Self::Binary => 1,
        }
    }
}

/// Names and values of the extFields, in the order of the header; of two with one name the later
/// counts.
pub type Ext<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// A decoded header. Texts borrow from the frame where that is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Request code, or response code when the response flag is set.
    pub code: i32,
    /// Bits [`FLAG_RESPONSE`] and [`FLAG_ONE_WAY`].
    pub flag: i32,
    /// Index into [`LANGUAGES`].
    pub language: u8,
    /// The peer's version.
    pub version: i32,
    /// Correlation number.
    pub opaque: i32,
    /// Text for people.
    pub remark: Option<Cow<'a, str>>,
    /// `None` when the header had no extFields at all.
    pub ext: Option<Ext<'a>>,
}

impl Header<'_> {
    /// The header of a frame in which nothing is said.
    pub fn empty() -> Self {
        Self {
            code: 0,
            flag: 0,
            language: JAVA,
            version: 0,
            opaque: 0,
            remark: None,
            ext: None,
        }
    }

    /// The value of an extField.
    pub fn get(&self, name: &str) -> Option<&str> {
        let ext = self.ext.as_ref()?;
        let (_, value) = ext.iter().rev().find(|(found, _)| found == name)?;
        Some(value)
    }
}

/// The code of a language's name; [`OTHER`] for an unknown one.
pub fn language_code(name: &str) -> u8 {
    LANGUAGES
        .iter()
        .position(|known| *known == name)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(OTHER)
}

/// The name of a language's code; that of [`OTHER`] for an unknown one.
pub fn language_name(code: u8) -> &'static str {
    LANGUAGES.get(usize::from(code)).unwrap_or(&"OTHER")
}
