//! The fuzz targets over their first inputs and over mutations of them, as a plain test: the same functions, no guidance.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../fuzz/src/targets.rs"]
#[expect(clippy::indexing_slicing, reason = "it is a test's own")]
mod targets;

use targets::{Target, seeds};

/// How many mutations of each first input are run.
const MUTATIONS: u64 = 60;

/// Random numbers from a seed: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(most.max(1)).expect("it is small")).expect("it is small")
    }
}

/// Changes an input in one to four places: a byte, a piece left out, doubled, or taken from another, a digit made large.
fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    const TELLING: [&[u8]; 12] =
        [b"\n\n", b"\r", b"\"", b"\\", b"{", b"}", b"[", b"]", b"null", b"-1", b"\xc3", b"99999999999999999999"];
    let mut input = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len());
        let to = (at + 1 + random.below(40)).min(input.len());
        match random.below(6) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => drop(input.drain(at..to)),
            2 => {
                let piece = input.get(at..to).unwrap_or_default().to_vec();
                input.splice(at..at, piece);
            }
            3 => {
                let from = random.below(other.len());
                let piece = other.get(from..(from + 60).min(other.len())).unwrap_or_default().to_vec();
                input.splice(at..at, piece);
            }
            4 => input.truncate(to),
            _ => {
                let piece = TELLING.get(random.below(TELLING.len())).copied().unwrap_or_default();
                input.splice(at..at, piece.iter().copied());
            }
        }
    }
    input
}

#[test]
fn every_target_holds_over_its_first_inputs_and_mutations_of_them() {
    for target in Target::ALL {
        let seeds = seeds(target);
        assert!(seeds.len() >= 2, "{target:?} has only {} first inputs", seeds.len());
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for seed in &seeds {
            let run = |input: &[u8]| {
                if std::panic::catch_unwind(|| target.run(input)).is_err() {
                    panic!("{} fails over {:?}", target.name(), String::from_utf8_lossy(input));
                }
            };
            run(seed);
            for _ in 0..MUTATIONS {
                let other = seeds.get(random.below(seeds.len())).map(Vec::as_slice).unwrap_or_default();
                run(&mutate(seed, other, &mut random));
            }
        }
    }
}
