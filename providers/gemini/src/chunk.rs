//! The shape of one chunk on the wire: borrowed from its text, lenient where servers differ, strict where evidence could be lost.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A chunk of a stream, or a whole answer.
///
/// What is rare and large is boxed, and what comes with each chunk is not: parsing one that has text allocates nothing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(crate) candidates: Candidates<'a>,
    #[serde(default)]
    pub(crate) usage_metadata: Option<Counts>,
    #[serde(borrow, default)]
    pub(crate) prompt_feedback: Option<Box<PromptFeedback<'a>>>,
    #[serde(borrow, default)]
    pub(crate) model_version: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) response_id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Whether it has a field by which a chunk is known.
    pub(crate) fn is_known(&self) -> bool {
        self.candidates.given
            || self.usage_metadata.is_some()
            || self.prompt_feedback.is_some()
            || self.error.is_some()
            || !self.response_id.0.is_empty()
            || !self.model_version.0.is_empty()
    }
}

/// Why a prompt was not answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PromptFeedback<'a> {
    #[serde(borrow, default)]
    pub(crate) block_reason: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) block_reason_message: Text<'a>,
}

/// The candidates of a chunk: only the first of them, index 0, is an answer to us.
#[derive(Default)]
pub(crate) struct Candidates<'a> {
    /// Whether the field was there.
    pub(crate) given: bool,
    pub(crate) first: Option<Candidate<'a>>,
    /// How many others there were.
    pub(crate) others: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Candidate<'a> {
    #[serde(default)]
    index: Option<i64>,
    #[serde(borrow, default)]
    pub(crate) content: Option<Content<'a>>,
    #[serde(borrow, default)]
    pub(crate) finish_reason: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) finish_message: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) grounding_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) url_context_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) citation_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct Content<'a> {
    #[serde(borrow, default)]
    pub(crate) parts: Parts<'a>,
}

/// The parts of a content: nearly always one.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    first: Option<Part<'a>>,
    others: Vec<Part<'a>>,
}

impl<'a> Parts<'a> {
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Part<'a>> {
        self.first.into_iter().chain(self.others)
    }
}

/// A part: one kind of data, and what is said about it.
#[derive(Default)]
pub(crate) struct Part<'a> {
    pub(crate) data: Data<'a>,
    pub(crate) thought: Option<bool>,
    pub(crate) signature: Text<'a>,
    /// A field that is not known.
    pub(crate) unknown: Option<String>,
}

/// The data of a part.
#[derive(Default)]
pub(crate) enum Data<'a> {
    #[default]
    None,
    Text(Text<'a>),
    Call(&'a RawValue),
    /// Code that the server runs.
    Code(&'a RawValue),
    CodeResult(&'a RawValue),
    /// A call of another tool that the server runs.
    ServerCall(&'a RawValue),
    ServerResult(&'a RawValue),
    Inline(&'a RawValue),
    File(&'a RawValue),
}

/// A call of ours, whole or in pieces.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Call<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) name: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) partial_args: Option<Vec<PartialArg<'a>>>,
    #[serde(default)]
    pub(crate) will_continue: Option<bool>,
}

/// A piece of a call's arguments, at a place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PartialArg<'a> {
    #[serde(borrow, default)]
    pub(crate) json_path: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) string_value: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) number_value: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) bool_value: Option<bool>,
    #[serde(default)]
    pub(crate) will_continue: Option<bool>,
}

/// Usage as the wire has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Counts {
    pub(crate) prompt_token_count: Count,
    pub(crate) candidates_token_count: Count,
    pub(crate) thoughts_token_count: Count,
    pub(crate) cached_content_token_count: Count,
    pub(crate) tool_use_prompt_token_count: Count,
}

/// A number of tokens; what is negative counts as 0, and what is no number as not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

/// A text that is borrowed where it has no escapes; `null` is empty, a number is its digits.
///
/// (Inside an `Option`, serde would not borrow a `Cow`.)
#[derive(Default)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for List<'a> {
            type Value = Parts<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of parts or null")
            }

            fn visit_unit<E: Error>(self) -> Result<Parts<'a>, E> {
                Ok(Parts::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parts<'a>, A::Error> {
                let mut parts = Parts { first: list.next_element()?, others: Vec::new() };
                while let Some(part) = list.next_element()? {
                    parts.others.push(part);
                }
                Ok(parts)
            }
        }

        deserializer.deserialize_any(List(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for Fields<'a> {
            type Value = Part<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'a>, A::Error> {
                let mut part = Part::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let data = match &*key.0 {
                        "text" => Data::Text(map.next_value()?),
                        "functionCall" => Data::Call(map.next_value()?),
                        "executableCode" => Data::Code(map.next_value()?),
                        "codeExecutionResult" => Data::CodeResult(map.next_value()?),
                        "toolCall" => Data::ServerCall(map.next_value()?),
                        "toolResponse" => Data::ServerResult(map.next_value()?),
                        "inlineData" => Data::Inline(map.next_value()?),
                        "fileData" => Data::File(map.next_value()?),
                        "thought" => {
                            part.thought = map.next_value()?;
                            continue;
                        }
                        "thoughtSignature" => {
                            part.signature = map.next_value()?;
                            continue;
                        }
                        name => {
                            if !matches!(name, "videoMetadata" | "mediaResolution" | "partMetadata") {
                                part.unknown = Some(name.to_owned());
                            }
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    // A field that is null says that the data is of another kind.
                    let null = match &data {
                        Data::None => true,
                        Data::Text(text) => text.0.is_empty(),
                        Data::Call(raw)
                        | Data::Code(raw)
                        | Data::CodeResult(raw)
                        | Data::ServerCall(raw)
                        | Data::ServerResult(raw)
                        | Data::Inline(raw)
                        | Data::File(raw) => raw.get() == "null",
                    };
                    match (&part.data, null) {
                        (Data::None, _) if !null || matches!(data, Data::Text(_)) => part.data = data,
                        (Data::Text(text), false) if text.0.is_empty() => part.data = data,
                        (_, true) => {}
                        (_, false) => return Err(A::Error::custom("a part with two kinds of data")),
                    }
                }
                Ok(part)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for Texts<'a> {
            type Value = Text<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or null")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(text)))
            }

            fn visit_unit<E: Error>(self) -> Result<Text<'a>, E> {
                Ok(Text::default())
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
        }

        deserializer.deserialize_any(Texts(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Candidates<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<'a>(PhantomData<&'a str>);

        impl<'de: 'a, 'a> Visitor<'de> for List<'a> {
            type Value = Candidates<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of candidates or null")
            }

            fn visit_unit<E: Error>(self) -> Result<Candidates<'a>, E> {
                Ok(Candidates { given: true, first: None, others: 0 })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Candidates<'a>, A::Error> {
                let mut candidates = Candidates { given: true, first: None, others: 0 };
                while let Some(candidate) = list.next_element::<Candidate<'a>>()? {
                    if candidates.first.is_none() && matches!(candidate.index, None | Some(0)) {
                        candidates.first = Some(candidate);
                    } else {
                        candidates.others += 1;
                    }
                }
                Ok(candidates)
            }
        }

        deserializer.deserialize_any(List(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl<'de> Visitor<'de> for Number {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
                Ok(Count(Some(number)))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
                Ok(Count(Some(u64::try_from(number).unwrap_or(0))))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Count, E> {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the cast saturates, which is what is wanted"
                )]
                Ok(Count(number.is_finite().then_some(number as u64)))
            }

            fn visit_unit<E: Error>(self) -> Result<Count, E> {
                Ok(Count(None))
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Count, E> {
                Ok(Count(None))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
                // JSON of protocol buffers writes large numbers as texts.
                Ok(Count(text.parse().ok()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Count(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Count(None))
            }
        }

        deserializer.deserialize_any(Number)
    }
}
