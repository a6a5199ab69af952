//! What was broken and what came of it, for people and for the crash matrix.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::fault::Fault;
use crate::verb::Verb;

/// Verb, fault, point and outcome, with how often each was seen.
#[derive(Default)]
pub(crate) struct Report(Mutex<BTreeMap<[String; 4], u32>>);

impl Report {
    pub(crate) fn add(&self, verb: Verb, fault: Fault, call: &str, file: &Path, outcome: &str) {
        let row = [
            verb.label().to_owned(),
            fault.label().to_owned(),
            format!("{call} {}", name_of(file)),
            outcome.to_owned(),
        ];
        let mut rows = self.0.lock().unwrap_or_else(|e| e.into_inner());
        *rows.entry(row).or_default() += 1;
    }

    pub(crate) fn print(&self) {
        let rows = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let mut totals: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for ([verb, fault, _, _], count) in rows.iter() {
            *totals.entry((verb, fault)).or_default() += count;
        }
        for ((verb, fault), count) in totals {
            println!("swept: {verb} {fault}: {count} points");
        }
    }

    /// One line per row, fields apart by tabs.
    pub(crate) fn write(&self) -> Result<()> {
        let Some(folder) = std::env::var_os("A3SBOX_CRASH_ROWS") else {
            return Ok(());
        };
        let mut text = String::new();
        for (fields, count) in self.0.lock().unwrap_or_else(|e| e.into_inner()).iter() {
            writeln!(text, "{}\t{count}", fields.join("\t"))?;
        }
        let path = PathBuf::from(folder).join("containerd.rows");
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

/// The file by what it is, without the names of this run.
fn name_of(path: &Path) -> String {
    let text = path.display().to_string();
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let place = if text.contains("/.runtime/") || name == ".runtime" {
        "runtime"
    } else if text.contains("/a3sbox/") {
        "manager"
    } else {
        "bundle"
    };
    let kind = if name.starts_with(".a3sbox-tmp") {
        "temporary"
    } else if name.ends_with(".json") || name.ends_with(".log") || name.ends_with(".lock") {
        name.as_str()
    } else if name.contains('.') && !name.starts_with('.') {
        "file"
    } else {
        "folder"
    };
    format!("{place}: {kind}")
}
