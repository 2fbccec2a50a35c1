//! `docs/conformance.md` has every case of the three suites with its promise and its mutant.
//!
//! `UPDATE_PAGES=1 cargo test -p settled-testkit --test suites_page` writes the tables anew.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use settled_testkit::conformance::{VERSION, provider, store, tool};

/// A suite: its name, its cases, and where its mutants are.
type Suite = (&'static str, Vec<(&'static str, &'static str)>, &'static [&'static str]);

fn suites() -> [Suite; 3] {
    [
        (
            "store",
            store::cases().map(|case| (case.name, case.promise)).collect(),
            &["mutant/mod.rs", "mutant/streams.rs"],
        ),
        ("tool", tool::cases().map(|case| (case.name, case.promise)).collect(), &["tool_mutants/office.rs"]),
        ("provider", provider::cases().map(|case| (case.name, case.promise)).collect(), &["provider_mutants/model.rs"]),
    ]
}

/// The functions that a mutant spoils: those whose text has the case's name.
fn spoiled(case: &str, sources: &[(String, String)]) -> BTreeSet<String> {
    let quoted = format!("\"{case}\"");
    let mut found = BTreeSet::new();
    for (file, text) in sources {
        let mut function = "";
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("fn ") {
                function = rest.split(['(', '<']).next().unwrap_or_default();
            }
            if line.contains(&quoted) {
                found.insert(format!("[`{function}`](../testkit/tests/{file})"));
            }
        }
    }
    found
}

/// The table of a suite.
fn table((name, cases, files): &Suite) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let sources: Vec<_> =
        files.iter().map(|file| ((*file).to_owned(), fs::read_to_string(root.join(file)).unwrap())).collect();
    let mut table = format!("{} cases.\n\n| case | promise | its mutant spoils |\n|---|---|---|\n", cases.len());
    for (case, promise) in cases {
        let spoiled = spoiled(case, &sources);
        assert!(!spoiled.is_empty(), "the case `{case}` of the {name} suite has no mutant");
        let spoiled: Vec<_> = spoiled.into_iter().collect();
        table.push_str(&format!("| {case} | {} | {} |\n", promise.replace('|', "\\|"), spoiled.join(", ")));
    }
    table
}

/// A report's version says which contracts it holds to: the suites and the contracts go by one number.
#[test]
fn the_suites_have_the_version_of_the_contracts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for member in ["ledger", "provider-api", "tools-api", "testkit"] {
        let manifest = fs::read_to_string(root.join(member).join("Cargo.toml")).unwrap();
        assert!(
            manifest.lines().any(|line| line == "version.workspace = true"),
            "{member} has a version of its own: say in `conformance::VERSION` which one a report names"
        );
    }
    let version = format!("version = \"{VERSION}\"");
    assert!(fs::read_to_string(root.join("Cargo.toml")).unwrap().contains(&version), "{version}");
}

#[test]
fn the_page_has_every_case_with_its_mutant() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/conformance.md");
    let before = fs::read_to_string(&path).unwrap();
    let mut page = before.clone();
    let mut mutants = 0;
    for suite in suites() {
        mutants += suite.1.len();
        let (from, to) = (format!("<!-- {} cases -->\n", suite.0), format!("<!-- end of {} cases -->\n", suite.0));
        let (head, rest) = page.split_once(&from).unwrap();
        let (_, tail) = rest.split_once(&to).unwrap();
        page = format!("{head}{from}{}{to}{tail}", table(&suite));
    }
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, &page).unwrap();
    } else {
        assert!(
            page == before,
            "docs/conformance.md is old: run this test with UPDATE_PAGES=1 and look at what changed"
        );
    }
    assert!(mutants >= 30, "only {mutants} mutants");
}
