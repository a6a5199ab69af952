//! Journals of any content: what is read is folded or refused, and nothing panics.

use super::*;

/// Inputs of a common run; a tenth of them, or what `A3SBOX_TEST_SCALE` says.
const INPUTS: usize = 200_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

fn lines() -> Vec<Vec<u8>> {
    let process = ProcessId::new("e1").unwrap();
    let entries = [
        created(),
        Entry::Started {
            operation: operation("start"),
        },
        exec("e1"),
        Entry::Signaled {
            operation: operation("signal"),
            process: Some(process.clone()),
        },
        exited("e1", 7),
        Entry::Paused {
            operation: operation("pause"),
        },
        Entry::Resumed {
            operation: operation("resume"),
        },
        Entry::Expired { process },
        Entry::Past {
            ids: "0123456789abcdef".repeat(3),
        },
        Entry::Outcome {
            operation: operation("idle"),
            status: Status::Running,
            process: None,
            lasting: true,
        },
        exited("init", 42),
    ];
    entries
        .iter()
        .map(|entry| serde_json::to_vec(entry).unwrap())
        .collect()
}

#[test]
fn no_journal_makes_the_fold_panic() {
    let valid = lines();
    let mut random = Random(7);
    let mut folded = 0;
    for _ in 0..scaled(INPUTS) {
        let mut image = Image::default();
        // Any order, any repetition, one line in four changed in a byte or cut.
        for _ in 0..random.below(12) {
            let mut line = valid[random.below(valid.len())].clone();
            if random.below(4) == 0 {
                let at = random.below(line.len());
                match random.below(3) {
                    0 => line.truncate(at),
                    1 => line[at] = random.below(256).to_le_bytes()[0],
                    _ => line.insert(at, b'0'),
                }
            }
            let Ok(entry) = decode(&line) else { break };
            if image.check(&entry).is_err() {
                assert!(image.apply(entry).is_err(), "checked and applied alike");
                break;
            }
            image.apply(entry).unwrap();
            folded += 1;
        }
        // Written anew, it is the same container.
        let mut again = Image::default();
        for entry in image.entries() {
            let line = serde_json::to_vec(&entry).unwrap();
            if again.apply(decode(&line).unwrap()).is_err() {
                // A container without its creation is never compacted: it is undone.
                assert!(image.init.is_none());
                break;
            }
        }
        if image.init.is_some() {
            assert_eq!(again.status, image.status);
            assert_eq!(again.execs.len(), image.execs.len());
            assert_eq!(again.past.lines(), image.past.lines());
        }
    }
    assert!(folded > 1000, "{folded}");
}
