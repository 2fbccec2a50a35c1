//! Fields that are read leniently where servers differ: texts that are borrowed, and numbers of tokens.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A number of tokens; what is negative counts as 0, and what is no number as not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

/// A text that is borrowed where it has no escapes; `null` is empty, a number is its digits.
///
/// (Inside an `Option`, serde would not borrow a `Cow`.)
#[derive(Default)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'a> Text<'a> {
    /// Whether there is nothing but white space.
    pub(crate) fn is_blank(&self) -> bool {
        self.0.trim().is_empty()
    }

    /// The text, if it is not blank.
    pub(crate) fn given(self) -> Option<Cow<'a, str>> {
        (!self.is_blank()).then_some(self.0)
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

            fn visit_str<E: Error>(self, _: &str) -> Result<Count, E> {
                Ok(Count(None))
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
