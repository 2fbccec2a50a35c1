//! What durability costs, against floors that are measured in the same run.
//!
//! Floors and figures alternate, round by round; what counts is the ratio of a round, and its median over the rounds.
//! `cargo bench -p settled-store-sqlite` prints the table of `docs/performance.md`; a word behind `--` runs only the goals with it.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

#[path = "goals/bare.rs"]
mod bare;

#[path = "goals/append.rs"]
mod append;

#[path = "goals/step.rs"]
mod step;

#[path = "goals/resume.rs"]
mod resume;

use std::time::Instant;

use settled_store_sqlite::SqliteStore;

/// One line of the table.
struct Line {
    what: String,
    /// What the floor and the figure are measured in.
    unit: &'static str,
    goal: Goal,
    floors: Vec<f64>,
    figures: Vec<f64>,
}

/// What the ratio of the figure to the floor is to be.
#[derive(Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
    None,
}

impl Line {
    fn new(what: impl Into<String>, unit: &'static str, goal: Goal) -> Self {
        Self { what: what.into(), unit, goal, floors: Vec::new(), figures: Vec::new() }
    }

    /// Takes in one round.
    fn round(&mut self, floor: f64, figure: f64) {
        self.floors.push(floor);
        self.figures.push(figure);
    }

    fn print(&self) {
        let ratios: Vec<_> = self.figures.iter().zip(&self.floors).map(|(figure, floor)| figure / floor).collect();
        let ratio = median(&ratios);
        let (goal, met) = match self.goal {
            Goal::AtLeast(goal) => (format!("at least {goal}"), Some(ratio >= goal)),
            Goal::AtMost(goal) => (format!("at most {goal}"), Some(ratio <= goal)),
            Goal::None => ("-".to_owned(), None),
        };
        let met = met.map_or("", |met| if met { "met" } else { "missed" });
        let (least, most) =
            (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
        println!(
            "| {} | {} {} | {} {} | {ratio:.2} ({least:.2} to {most:.2}) | {goal} | {met} |",
            self.what,
            number(median(&self.floors)),
            self.unit,
            number(median(&self.figures)),
            self.unit,
        );
    }
}

fn main() {
    // Cargo passes `--bench`; as a test it is only built and begun.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let only: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let rounds = if measured { 7 } else { 1 };
    let wanted = |what: &str| only.is_empty() || only.iter().any(|word| what.contains(word));
    println!("| what | floor | figure | ratio: median (least to most) of {rounds} rounds | goal | |");
    println!("|---|---|---|---|---|---|");
    if wanted("append") {
        append::measure(rounds, if measured { 30_000 } else { 600 });
    }
    if wanted("step") {
        step::measure(rounds, if measured { 400 } else { 4 });
    }
    if wanted("resume") {
        resume::measure(rounds.min(5), if measured { 1_000_000 } else { 1_000 });
    }
    if wanted("open") {
        open(rounds * 3);
    }
}

/// Opening a file that is there.
fn open(rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut line =
        Line::new("open a file that is there, against a bare connection with the same pragmas", "ms", Goal::None);
    // The first opening makes the file.
    runtime.block_on(SqliteStore::open(&path).unwrap().close());
    for _ in 0..rounds {
        let start = Instant::now();
        drop(bare::connect(&path));
        let floor = millis(start);
        let start = Instant::now();
        let store = SqliteStore::open(&path).unwrap();
        let figure = millis(start);
        runtime.block_on(store.close());
        line.round(floor, figure);
    }
    line.print();
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1_000.0
}

/// The middle of some figures.
fn median(figures: &[f64]) -> f64 {
    part(figures, 0.5)
}

/// The figure that such a part of all is not above.
fn part(figures: &[f64], part: f64) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * part).round() as usize]
}

fn number(figure: f64) -> String {
    match figure {
        10_000.0.. => format!("{:.0} k", figure / 1_000.0),
        10.0.. => format!("{figure:.0}"),
        _ => format!("{figure:.2}"),
    }
}
