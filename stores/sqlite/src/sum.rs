//! Checksums of what people and models have said: a row that the disk has changed is found, never given out as it is.
//!
//! SQLite notices damage to the structure of a page, not to what a row says.

use crc32fast::Hasher;

/// The checksum of one event.
///
/// The session's number and the sequence are in it: a row that is whole, but not the one that was asked for, does not match.
pub(crate) fn of_event(number: i64, seq: i64, at: i64, version: u16, kind: &str, body: &str) -> u32 {
    of(&[&number.to_le_bytes(), &seq.to_le_bytes(), &at.to_le_bytes(), &version.to_le_bytes()], &[kind, body])
}

/// The checksum of one pending input.
pub(crate) fn of_input(number: i64, arrival: i64, id: &[u8; 16], key: Option<&str>, at: i64, input: &str) -> u32 {
    let key = key.map_or([""; 2], |key| ["key", key]);
    of(&[&number.to_le_bytes(), &arrival.to_le_bytes(), id, &at.to_le_bytes()], &[key[0], key[1], input])
}

/// The checksum of one history cache.
pub(crate) fn of_fold(number: i64, head: i64, mark: &str, format: &str, body: &str) -> u32 {
    of(&[&number.to_le_bytes(), &head.to_le_bytes()], &[mark, format, body])
}

/// Sums fields of a fixed length, then texts; where one text ends and the next begins is summed too.
fn of(fixed: &[&[u8]], texts: &[&str]) -> u32 {
    let mut sum = Hasher::new();
    // At once: a sum over a few bytes costs as much as one over sixty.
    let mut gathered = [0; 64];
    let mut length = 0;
    for field in fixed {
        debug_assert!(length + field.len() <= gathered.len(), "the fixed fields of a row have their place");
        if let Some(place) = gathered.get_mut(length..length + field.len()) {
            place.copy_from_slice(field);
            length += field.len();
        }
    }
    sum.update(gathered.get(..length).unwrap_or_default());
    for text in texts {
        sum.update(&(text.len() as u64).to_le_bytes());
        sum.update(text.as_bytes());
    }
    sum.finalize()
}
