//! A piece of text as it is shown live.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A piece of text, made once and shown to every reader.
///
/// Pieces of a few words, which most are, take no allocation; cloning is cheap for all.
#[derive(Clone)]
pub struct Piece(Kept);

#[derive(Clone)]
enum Kept {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

/// How many bytes a short piece has at most: as many as fit beside their length in three words.
const SHORT: usize = 22;

impl Piece {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // It was text when it was put there.
            Kept::Short { length, bytes } => {
                let bytes = bytes.get(..usize::from(*length)).unwrap_or_default();
                std::str::from_utf8(bytes).unwrap_or_default()
            }
            Kept::Long(text) => text,
        }
    }
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(text.as_bytes());
                Self(Kept::Short { length, bytes })
            }
            _ => Self(Kept::Long(text.into())),
        }
    }
}

impl Deref for Piece {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Piece {}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_the_text_that_it_was_made_of() {
        assert_eq!(size_of::<Piece>(), 24);
        let long = "größer als kurz ".repeat(3);
        let mut ends = long.char_indices().map(|(end, _)| end).chain([long.len()]);
        assert!(ends.by_ref().any(|end| end == SHORT), "one of them has just the room that there is");
        for end in long.char_indices().map(|(end, _)| end).chain([long.len()]) {
            let text = &long[..end];
            let piece = Piece::from(text);
            assert_eq!((&*piece, piece.clone(), piece.to_string()), (text, piece.clone(), text.to_owned()));
            assert_eq!(matches!(piece.0, Kept::Short { .. }), end <= SHORT, "{text}");
            assert_eq!(format!("{piece:?}"), format!("{text:?}"));
        }
        assert_ne!(Piece::from("a"), Piece::from("b"));
    }
}
