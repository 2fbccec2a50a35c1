//! Arguments: `--name value`, each used once.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::Outcome;

pub(crate) struct Args(BTreeMap<String, String>);

impl Args {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut args = BTreeMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("`{word}` is no argument: expected --NAME"))?;
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            args.insert(name.to_owned(), value);
        }
        Ok(Self(args))
    }

    /// Takes an argument, or its default.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str, default: T) -> Outcome<T> {
        match self.0.remove(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| format!("--{name} cannot be `{value}`")),
        }
    }

    /// Says so if an argument was not taken.
    pub(crate) fn finish(self) -> Outcome<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("--{name} is not known here")),
        }
    }
}
