//! What the suites share: which cases run, what a case answers, and short ways to say what must be seen.

use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::{Breach, Line, Report, Verdict};

/// How many characters of a value a breach shows.
const SHOWN: usize = 1_000;

/// What a case answers.
pub(super) type Checked = Result<(), Details>;

/// Why a promise was not found to be kept.
pub(super) enum Details {
    /// What was seen, and what should have been.
    Broken(String),
    /// Why the case does not apply to its subject.
    Skipped(String),
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(text) | Self::Skipped(text) => f.write_str(text),
        }
    }
}

/// What should have answered failed.
impl<E: std::error::Error> From<E> for Details {
    fn from(error: E) -> Self {
        Self::Broken(format!("it failed: {error} ({error:?})"))
    }
}

/// A breach with these words.
pub(super) fn broken<T>(details: impl Into<String>) -> Result<T, Details> {
    Err(Details::Broken(details.into()))
}

/// A case that does not apply, for this reason.
pub(super) fn skipped<T>(reason: impl Into<String>) -> Result<T, Details> {
    Err(Details::Skipped(reason.into()))
}

/// Holds what was seen against what should have been.
pub(super) fn same<T: PartialEq + Debug>(what: &str, seen: T, should: T) -> Checked {
    match seen == should {
        true => Ok(()),
        false => broken(format!("{what}: it was {}, and should be {}", shown(&seen), shown(&should))),
    }
}

/// A value as a breach shows it.
pub(super) fn shown(value: &dyn Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Runs futures at once and answers what they answered, in their order.
pub(super) async fn all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(Some).collect();
    let mut answers: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(move |cx| {
        for (future, answer) in running.iter_mut().zip(&mut answers) {
            if let Some(Poll::Ready(answered)) = future.as_mut().map(|future| future.as_mut().poll(cx)) {
                *future = None;
                *answer = Some(answered);
            }
        }
        match running.iter().all(Option::is_none) {
            true => Poll::Ready(answers.iter_mut().filter_map(Option::take).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

/// Which cases run, and which are left out and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) only: Option<String>,
    pub(super) skipped: Vec<(String, String)>,
}

impl Selection {
    /// Runs the cases that are asked for, one after another; each is a name and a promise, and is run by its place.
    ///
    /// A name that was given and that no case has is a breach: a suite must not pass because of a slip of the pen.
    pub(super) async fn run<F>(
        &self,
        suite: &'static str,
        cases: &[(&'static str, &'static str)],
        check: impl Fn(usize) -> F,
    ) -> Report
    where
        F: Future<Output = Checked>,
    {
        let mut report = Report { suite: suite.to_owned(), ..Report::default() };
        let named = self.skipped.iter().map(|(name, _)| name).chain(&self.only);
        for name in named.filter(|name| cases.iter().all(|(case, _)| case != name)) {
            report.lines.push(Line {
                case: name.clone(),
                promise: "The suite has a case of this name.".to_owned(),
                verdict: Verdict::Broken(Breach { case: name.clone(), details: "there is no such case".to_owned() }),
            });
        }
        for (place, (name, promise)) in cases.iter().enumerate() {
            if self.only.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let verdict = match self.skipped.iter().find(|(skipped, _)| skipped == name) {
                Some((_, reason)) => Verdict::Skipped(reason.clone()),
                None => match check(place).await {
                    Ok(()) => Verdict::Kept,
                    Err(Details::Skipped(reason)) => Verdict::Skipped(reason),
                    Err(Details::Broken(details)) => Verdict::Broken(Breach { case: (*name).to_owned(), details }),
                },
            };
            report.lines.push(Line { case: (*name).to_owned(), promise: (*promise).to_owned(), verdict });
        }
        report
    }
}
