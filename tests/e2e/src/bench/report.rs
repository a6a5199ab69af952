//! Figures of pairs, and how they are printed.

use std::fmt::Write;

use crate::measure::Measure;

/// Our figure and the rival's, round by round.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    ours: Vec<f64>,
    rival: Vec<f64>,
}

impl Pairs {
    pub(crate) fn push(&mut self, ours: f64, rival: f64) {
        self.ours.push(ours);
        self.rival.push(rival);
    }

    /// Ratio of each pair, sorted.
    fn ratios(&self) -> Vec<f64> {
        sorted(
            self.ours
                .iter()
                .zip(&self.rival)
                .map(|(a, b)| a / b)
                .collect(),
        )
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which a share of the sorted values lies.
fn quantile(values: &[f64], share: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    // Indices of at most a few dozen rounds: exact in f64.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= index <= last"
    )]
    let index = (share * last as f64).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}

#[derive(Debug)]
struct Row {
    containerd: String,
    measure: &'static str,
    unit: &'static str,
    rival: String,
    rounds: usize,
    ours: f64,
    theirs: f64,
    ratio: f64,
    low: f64,
    high: f64,
    goal: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    pub(crate) fn add(&mut self, containerd: &str, measure: &Measure, rival: &str, pairs: Pairs) {
        let ratios = pairs.ratios();
        self.0.push(Row {
            containerd: containerd.to_owned(),
            measure: measure.name,
            unit: measure.unit,
            rival: rival.to_owned(),
            rounds: ratios.len(),
            ours: quantile(&sorted(pairs.ours), 0.5),
            theirs: quantile(&sorted(pairs.rival), 0.5),
            ratio: quantile(&ratios, 0.5),
            low: quantile(&ratios, 0.25),
            high: quantile(&ratios, 0.75),
            goal: measure.goal,
        });
    }

    /// Medians, the median ratio of the pairs with its quartiles, and whether it meets its goal.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:<17} {:<9} {:>6} {:>11} {:>11} {:>6}  {:<13} {:>5}\n",
            "containerd",
            "measure",
            "rival",
            "rounds",
            "ours",
            "theirs",
            "ratio",
            "quartiles",
            "goal"
        );
        for row in &self.0 {
            let _ = writeln!(
                text,
                "{:<10} {:<17} {:<9} {:>6} {:>7.1} {:<3} {:>7.1} {:<3} {:>6.2}  {:<13} {:>5.2} {}",
                row.containerd,
                row.measure,
                row.rival,
                row.rounds,
                row.ours,
                row.unit,
                row.theirs,
                row.unit,
                row.ratio,
                format!("{:.2} to {:.2}", row.low, row.high),
                row.goal,
                if row.ratio <= row.goal {
                    "met"
                } else {
                    "missed"
                }
            );
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<_> = self
            .0
            .iter()
            .map(|row| {
                serde_json::json!({
                    "containerd": row.containerd, "measure": row.measure, "unit": row.unit, "rival": row.rival,
                    "rounds": row.rounds, "ours": row.ours, "theirs": row.theirs, "ratio": row.ratio,
                    "quartiles": [row.low, row.high], "goal": row.goal
                })
            })
            .collect();
        format!("{}\n", serde_json::Value::from(rows))
    }
}
