//! Conformance suites: cases with a name, a promise, and a run.
//!
//! A suite is run on a *fixture* that makes a fresh subject for each case, and answers a [`Report`]; a promise that is not kept is a [`Breach`], never a panic.
//! Each case has a *mutant* in the testkit's own tests: a subject that is wrong in that one thing, and that the case must find.
//!
//! A report names the version of the suites; a new case is a line in the changelog.

pub mod provider;

pub mod store;

pub mod tool;

mod suite;

use std::fmt;

use serde_json::json;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breach {
    /// The case that shows it.
    pub case: String,
    /// What was seen, and what should have been.
    pub details: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.details)
    }
}

impl std::error::Error for Breach {}

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever reads a report must see all of it")]
pub enum Verdict {
    /// The promise was kept.
    Kept,
    /// The case was not run, for this reason.
    Skipped(String),
    /// The promise was not kept.
    Broken(Breach),
}

/// One case in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The case.
    pub case: String,
    /// What it holds the subject to.
    pub promise: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// The version of the suites: that of the api crates whose contracts they hold subjects to.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What came of a suite, in the order of its cases.
///
/// It prints as text, those that were kept left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The suite: `store`, `tool`, `provider`.
    pub suite: String,
    /// One line for each case that was asked for.
    pub lines: Vec<Line>,
}

impl Report {
    /// The promises that were not kept.
    pub fn breaches(&self) -> impl Iterator<Item = &Breach> {
        self.lines.iter().filter_map(|line| match &line.verdict {
            Verdict::Broken(breach) => Some(breach),
            Verdict::Kept | Verdict::Skipped(_) => None,
        })
    }

    /// How many promises were kept.
    pub fn kept(&self) -> usize {
        self.lines.iter().filter(|line| line.verdict == Verdict::Kept).count()
    }

    /// The report as a result: an error where a promise was not kept, or where nothing was run.
    pub fn into_result(self) -> Result<Self, BrokenReport> {
        match self.breaches().next().is_some() || self.kept() == 0 {
            true => Err(BrokenReport(self)),
            false => Ok(self),
        }
    }

    /// The report as one JSON object: `{"suite","version","cases":[{"case","promise","verdict","details"?}]}`.
    ///
    /// `verdict` is `kept`, `skipped` or `broken`; `details` has the reason or the breach.
    pub fn to_json(&self) -> String {
        let cases: Vec<_> = self
            .lines
            .iter()
            .map(|line| {
                let (verdict, details) = match &line.verdict {
                    Verdict::Kept => ("kept", None),
                    Verdict::Skipped(reason) => ("skipped", Some(reason)),
                    Verdict::Broken(breach) => ("broken", Some(&breach.details)),
                };
                let mut case = json!({ "case": line.case, "promise": line.promise, "verdict": verdict });
                if let Some(details) = details {
                    case["details"] = json!(details);
                }
                case
            })
            .collect();
        json!({ "suite": self.suite, "version": VERSION, "cases": cases }).to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = self.breaches().count();
        let skipped = self.lines.len() - self.kept() - broken;
        write!(f, "{} suite {VERSION}, {} cases: ", self.suite, self.lines.len())?;
        write!(f, "{} kept, {broken} broken, {skipped} skipped", self.kept())?;
        for line in &self.lines {
            match &line.verdict {
                Verdict::Kept => {}
                Verdict::Skipped(reason) => write!(f, "\n  skipped {}: {reason}", line.case)?,
                Verdict::Broken(breach) => {
                    write!(f, "\n  broken  {}: {}\n          {}", line.case, line.promise, breach.details)?
                }
            }
        }
        Ok(())
    }
}

/// A report with a promise in it that was not kept.
///
/// Its debug form is the report's text, so that `unwrap` in a test prints what a reader needs.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenReport(pub Report);

impl fmt::Debug for BrokenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BrokenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BrokenReport {}
