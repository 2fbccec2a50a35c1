//! Names: of a session, a step's message, a call, and a call's side effect.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A text that is not an id of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidId {
    kind: &'static str,
    text: String,
    why: &'static str,
}

impl InvalidId {
    /// An error for `text`, which should have been a `kind`.
    #[doc(hidden)]
    pub fn new(kind: &'static str, text: &str, why: &'static str) -> Self {
        Self { kind, text: text.chars().take(80).collect(), why }
    }
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a {}: {}", self.text.escape_debug(), self.kind, self.why)
    }
}

impl std::error::Error for InvalidId {}

/// Makes a `Copy` id of 128 bits with a prefix, as in `msg_0190f3…`.
#[doc(hidden)]
#[macro_export]
macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Makes an id of 128 bits; uniqueness is the maker's duty.
            pub const fn from_u128(bits: u128) -> Self {
                Self(bits)
            }

            /// The bits this id was made from.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!($prefix, "_{:032x}"), self.0)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::InvalidId;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                let why = concat!("it must be `", $prefix, "_` and 32 hexadecimal digits");
                text.strip_prefix(concat!($prefix, "_"))
                    .filter(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|hex| u128::from_str_radix(hex, 16).ok())
                    .map(Self)
                    .ok_or_else(|| $crate::InvalidId::new(stringify!($name), text, why))
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> ::std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> ::std::result::Result<Self, D::Error> {
                struct Text;
                impl ::serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str(concat!("`", $prefix, "_` and 32 hexadecimal digits"))
                    }
                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> ::std::result::Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Text)
            }
        }
    };
}

/// The name of a session: chosen by the application, 1 to 128 visible characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Takes a name; it must have 1 to 128 characters and no white space or control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidId> {
        let name = name.as_ref();
        let why = if name.is_empty() {
            "it is empty"
        } else if name.chars().count() > 128 {
            "it has more than 128 characters"
        } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            "it has white space or a control character"
        } else {
            return Ok(Self(name.into()));
        };
        Err(InvalidId::new("session id", name, why))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.0)
    }
}

impl FromStr for SessionId {
    type Err = InvalidId;

    fn from_str(name: &str) -> Result<Self, InvalidId> {
        Self::new(name)
    }
}

impl TryFrom<String> for SessionId {
    type Error = InvalidId;

    fn try_from(name: String) -> Result<Self, InvalidId> {
        Self::new(name)
    }
}

impl TryFrom<&str> for SessionId {
    type Error = InvalidId;

    fn try_from(name: &str) -> Result<Self, InvalidId> {
        Self::new(name)
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0.as_ref().to_owned()
    }
}

id_type! {
    /// The id of one assistant message, and so of one step.
    MessageId, "msg"
}

/// The identity of one tool call: its step, and its place in that step.
///
/// It is minted by the ledger at first sight of the call.
/// The id that the provider gave is only a label on the wire: it may be missing, blank, or used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a key is its two parts; a third would be another key")]
pub struct CallKey {
    /// The assistant message that made the call.
    pub step: MessageId,
    /// The place among that message's calls, local and hosted, from 0.
    pub ordinal: u32,
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.step, self.ordinal)
    }
}

impl FromStr for CallKey {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId::new("call key", text, "it must be a message id, `/`, and a number");
        let (step, ordinal) = text.split_once('/').ok_or_else(invalid)?;
        Ok(Self { step: step.parse()?, ordinal: ordinal.parse().map_err(|_| invalid())? })
    }
}

/// The stable name of one call's side effect: the same over retries and restarts.
///
/// It is safe in an HTTP header and has at most 64 characters, so that a tool can pass it on as an idempotency key.
/// It protects one recorded call; it does not protect against the model's making the same call again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EffectKey(Arc<str>);

impl EffectKey {
    /// Takes a key: 1 to 64 ASCII letters, digits, `-` or `_`.
    pub fn new(key: impl AsRef<str>) -> Result<Self, InvalidId> {
        let key = key.as_ref();
        let fits =
            (1..=64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if fits {
            Ok(Self(key.into()))
        } else {
            Err(InvalidId::new("effect key", key, "it must be 1 to 64 ASCII letters, digits, `-` or `_`"))
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for EffectKey {
    type Error = InvalidId;

    fn try_from(key: String) -> Result<Self, InvalidId> {
        Self::new(key)
    }
}

impl From<EffectKey> for String {
    fn from(key: EffectKey) -> Self {
        key.0.as_ref().to_owned()
    }
}
