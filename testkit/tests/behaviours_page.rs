//! `docs/behaviours.md` names every scenario file, by its title, and no other; what has no file names the test that holds it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

#[test]
fn the_page_names_every_scenario_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/behaviours.md")).unwrap();
    let mut files = BTreeSet::new();
    for group in fs::read_dir(root.join("scenarios")).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(&group).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let scenario: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            let link = format!("(../{})", file.strip_prefix(root).unwrap().display());
            let row = page.lines().find(|line| line.contains(&link));
            let row = row.unwrap_or_else(|| panic!("docs/behaviours.md has no row for {link}"));
            let title = scenario["name"].as_str().unwrap().replace('|', "\\|");
            let title =
                title.split_once(' ').filter(|_| !row.starts_with("|  |")).map_or(title.as_str(), |(_, title)| title);
            assert!(row.contains(title), "the row for {link} does not have the title `{title}`");
            files.insert(link);
        }
    }
    let rows = page.lines().filter(|line| line.contains("(../scenarios/")).count();
    assert_eq!(rows, files.len(), "docs/behaviours.md has rows without a file");
}

/// The tables of the notes beside the scenario files say for every situation without a file what holds it: a test that is there, or why there is none.
#[test]
fn the_notes_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut named = 0;
    for notes in fs::read_dir(root.join("scenarios")).unwrap().map(|entry| entry.unwrap().path()) {
        if !notes.to_str().unwrap().ends_with(".notes.md") {
            continue;
        }
        for row in fs::read_to_string(&notes).unwrap().lines().filter(|line| line.starts_with("| ")) {
            let held_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            let tests: Vec<(&str, &str)> = held_by.split('`').filter_map(|name| name.split_once(".rs: ")).collect();
            for (file, test) in &tests {
                let file = format!("{file}.rs");
                let source =
                    fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}: {row}"));
                assert!(source.contains(&format!("fn {test}(")), "{file} has no test `{test}`: {row}");
            }
            let said = WITHOUT_A_TEST.iter().any(|word| held_by.starts_with(word));
            assert!(!tests.is_empty() || said, "{}: nothing holds this: {row}", notes.display());
            named += tests.len();
        }
    }
    assert!(named > 0, "no table names a test");
}

/// How a row begins that names no test; the first is the head of a table.
const WITHOUT_A_TEST: [&str; 5] = ["What holds it", "not ours", "cannot happen", "open: ", "scenario"];
