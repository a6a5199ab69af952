//! Events as containerd's subscribers see them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{BUSYBOX, Node, eventually};

/// How long a subscription may take until it is live.
const LIMIT: Duration = Duration::from_secs(10);

/// `ctr events`, read as it comes.
#[derive(Debug)]
pub struct Watcher {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Watcher {
    pub fn start(node: &Node<'_>) -> Result<Self> {
        let mut child = Command::new("ctr")
            .args(["-n", node.namespace(), "events"])
            .env_clear()
            .envs(node.containerd.env())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take().context("no stdout")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out)
                .lines()
                .map_while(std::result::Result::ok)
            {
                if let Ok(mut lines) = sink.lock() {
                    lines.push(line);
                }
            }
        });
        let watcher = Self { child, lines };
        // The subscription is live when an event that we cause ourselves comes through.
        let probe = node.id("probe");
        eventually("the subscription is live", LIMIT, || {
            node.ctr(&[
                "container",
                "create",
                "--runtime",
                node.shim.runtime_type(),
                BUSYBOX,
                &probe,
                "true",
            ])?;
            node.ctr(&["container", "rm", &probe])?;
            Ok(watcher.lines_of(&probe).first().map(drop))
        })?;
        Ok(watcher)
    }

    /// Lines that name `id` in quotes.
    pub fn lines_of(&self, id: &str) -> Vec<String> {
        let mark = format!("\"{id}\"");
        self.lines
            .lock()
            .map(|lines| {
                lines
                    .iter()
                    .filter(|line| line.contains(&mark))
                    .cloned()
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Topics of the task's events, once `last` is among them.
    pub fn topics_of(&self, id: &str, last: &str, limit: Duration) -> Result<Vec<String>> {
        let topics = || -> Vec<String> {
            self.lines_of(id)
                .iter()
                .filter_map(|line| {
                    line.split_whitespace()
                        .find(|word| word.starts_with("/tasks/"))
                })
                .map(str::to_owned)
                .collect()
        };
        eventually(&format!("event {last} of {id}"), limit, || {
            Ok(topics().iter().any(|t| t == last).then_some(()))
        })
        .with_context(|| format!("{:?}", topics()))?;
        Ok(topics())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
