//! The shape of one chunk on the wire: borrowed from its text, lenient where servers differ, strict where evidence could be lost.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

pub(super) use crate::lenient::{Count, Text};

/// A chunk of a stream, or a whole answer.
///
/// What is rare and large is boxed: parsing moves the whole struct several times.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) object: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) choices: Choices<'a>,
    #[serde(default)]
    pub(super) usage: Option<Box<Counts>>,
    #[serde(default)]
    pub(super) x_groq: Option<XGroq>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) citations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) search_results: Option<&'a RawValue>,
}

/// Where Groq puts usage.
#[derive(Deserialize)]
pub(super) struct XGroq {
    #[serde(default)]
    pub(super) usage: Option<Box<Counts>>,
}

/// The choices of a chunk: only the first of them, index 0, is an answer to us.
#[derive(Default)]
pub(super) struct Choices<'a> {
    /// Whether the field was there.
    pub(super) given: bool,
    pub(super) first: Option<Choice<'a>>,
    /// How many others there were.
    pub(super) others: u64,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    index: Option<i64>,
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    /// The whole answer, of a server that does not stream; some repeat it beside each delta.
    #[serde(borrow, default)]
    pub(super) message: Option<Box<Delta<'a>>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Text<'a>,
}

#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Content<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Text<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning: Text<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<Fragment<'a>>>,
    /// What calls were before there were several.
    #[serde(borrow, default)]
    pub(super) function_call: Option<Box<Function<'a>>>,
    #[serde(borrow, default)]
    pub(super) annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) images: Option<&'a RawValue>,
}

/// A piece of a call; no field of it can be relied on.
#[derive(Default, Deserialize)]
pub(super) struct Fragment<'a> {
    #[serde(default)]
    pub(super) index: Option<i64>,
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    /// A text of JSON; an object from some gateways.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> Function<'a> {
    /// The arguments as text; nothing and `null` are no text.
    pub(super) fn arguments(&self) -> Result<Cow<'a, str>, serde_json::Error> {
        match self.arguments.map(RawValue::get) {
            None => Ok(Cow::Borrowed("")),
            Some(text) if text.starts_with('"') => serde_json::from_str::<Text<'a>>(text).map(|text| text.0),
            Some(object) => Ok(Cow::Borrowed(object)),
        }
    }
}

/// The content of a delta or a message.
pub(super) enum Content<'a> {
    Text(Text<'a>),
    Parts(Vec<Part<'a>>),
}

/// A part of a content that is a list.
#[derive(Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<Box<Content<'a>>>,
}

/// Usage as the wire has it, from all the places where it is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    pub(super) prompt_tokens: Count,
    pub(super) completion_tokens: Count,
    pub(super) total_tokens: Count,
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    pub(super) completion_tokens_details: Option<CompletionDetails>,
    pub(super) reasoning_tokens: Count,
    pub(super) cached_tokens: Count,
    pub(super) prompt_cache_hit_tokens: Count,
    pub(super) cache_read_input_tokens: Count,
    pub(super) cache_creation_input_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: Count,
    pub(super) cache_write_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct CompletionDetails {
    pub(super) reasoning_tokens: Count,
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Contents<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for Contents<'a> {
            type Value = Content<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of parts or null")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Content<'a>, E> {
                Ok(Content::Text(Text(Cow::Borrowed(text))))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content<'a>, E> {
                Ok(Content::Text(Text(Cow::Owned(text.to_owned()))))
            }

            fn visit_unit<E: Error>(self) -> Result<Content<'a>, E> {
                Ok(Content::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content<'a>, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }

        deserializer.deserialize_any(Contents(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for List<'a> {
            type Value = Choices<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices or null")
            }

            fn visit_unit<E: Error>(self) -> Result<Choices<'a>, E> {
                Ok(Choices { given: true, first: None, others: 0 })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'a>, A::Error> {
                let mut choices = Choices { given: true, first: None, others: 0 };
                while let Some(choice) = list.next_element::<Choice<'a>>()? {
                    if choices.first.is_none() && matches!(choice.index, None | Some(0)) {
                        choices.first = Some(choice);
                    } else {
                        choices.others += 1;
                    }
                }
                Ok(choices)
            }
        }

        deserializer.deserialize_any(List(PhantomData))
    }
}
