//! Mutates, runs, counts. Without feedback: what it lacks in direction it has in speed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::Target;

/// Inputs do not grow beyond this.
const MAX_INPUT_BYTES: usize = 64 * 1024;
/// Mutated inputs that are mutated further.
const POOL: usize = 256;
/// Most mutations on top of each other.
const MAX_STACK: u64 = 6;
/// How often the clock is looked at.
const CLOCK_EVERY: u64 = 64;

/// When to end.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    Inputs(u64),
    For(Duration),
}

/// What a run did.
#[derive(Debug, Clone)]
pub struct Report {
    pub inputs: u64,
    pub took: Duration,
    /// The input that made the target panic; the run ended there.
    pub failure: Option<Vec<u8>>,
}

/// Runs a target on its seeds, then on mutations of them. The same seed gives the same inputs.
pub fn run(target: &Target, limit: Limit, seed: u64) -> Report {
    let began = Instant::now();
    let mut random = Random(seed | 1);
    let seeds = (target.seeds)();
    let mut pool = seeds.clone();
    let mut inputs = 0;
    let report = |inputs, failure| Report {
        inputs,
        took: began.elapsed(),
        failure,
    };
    loop {
        let over = match limit {
            Limit::Inputs(most) => inputs >= most,
            Limit::For(time) => inputs % CLOCK_EVERY == 0 && began.elapsed() >= time,
        };
        if over {
            return report(inputs, None);
        }
        let input = match usize::try_from(inputs).ok().and_then(|at| seeds.get(at)) {
            Some(seed) => seed.clone(),
            None => mutate(&mut random, &pool, seeds.len()),
        };
        inputs += 1;
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            return report(inputs, Some(input));
        }
        if pool.len() < POOL {
            pool.push(input);
        } else if random.below(8) == 0 {
            // The seeds stay: a pool of rubbish finds nothing.
            let at = seeds.len() + random.at(POOL - seeds.len());
            pool[at] = input;
        }
    }
}

/// The pool begins with the seeds. Every other input comes right from them: mutations of mutations drift to
/// what is refused at its first byte.
fn mutate(random: &mut Random, pool: &[Vec<u8>], seeds: usize) -> Vec<u8> {
    let from = if random.below(2) == 0 {
        seeds
    } else {
        pool.len()
    };
    let mut input = pool[random.at(from)].clone();
    for _ in 0..=random.below(MAX_STACK) {
        step(random, &mut input, pool);
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

fn step(random: &mut Random, input: &mut Vec<u8>, pool: &[Vec<u8>]) {
    const WORDS: [&[u8]; 14] = [
        b"\0",
        b"\"",
        b"{}",
        b"[]",
        b"null",
        b"-1",
        b"1e999",
        b"18446744073709551616",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"..",
        b"\\u0000",
        b"\n",
        b"[[[[[[[[",
    ];
    if input.is_empty() {
        input.push(random.byte());
        return;
    }
    let at = random.at(input.len());
    match random.below(9) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.byte(),
        2 => input.insert(at, random.byte()),
        3 => {
            let end = (at + 1 + random.at(16)).min(input.len());
            input.drain(at..end);
        }
        4 => input.truncate(at),
        5 => {
            let end = (at + 1 + random.at(64)).min(input.len());
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        6 => {
            let word = WORDS[random.at(WORDS.len())];
            input.splice(at..at, word.iter().copied());
        }
        7 => {
            let other = &pool[random.at(pool.len())];
            if !other.is_empty() {
                let from = random.at(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
        _ => {
            let word = WORDS[random.at(WORDS.len())];
            let end = (at + word.len()).min(input.len());
            input.splice(at..end, word.iter().copied());
        }
    }
}

/// Xorshift: fast, and good enough to wander.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn at(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[3]
    }
}
