//! From what a sandbox's process writes to the console log that `read_logs` reads.
//!
//! ```text
//! process ─► <logs>/stdout.raw ─┐
//!         ─► <logs>/stderr.raw ─┴─ project ─► console.log: one JSON line per line of output
//!                                     └────► cursor: how much of both was projected
//! ```
//!
//! The process appends to the raw files itself, so its output needs nobody of ours alive: a later client
//! projects what was written meanwhile. What was projected is given back to the disk by punching holes. A line
//! without an end is projected when the process has ended or the line is too long. A crash between log and
//! cursor may repeat the last lines; nothing is lost.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use a3sbox_core::{LogConfig, LogDriver, LogEntry};
use rustix::fs::{FallocateFlags, fallocate};

use super::ids::FIRST_HOST_ID;

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";
const CURSOR_FILE: &str = "projection.cursor";
/// How long output may take to reach the log.
const PROJECTION_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of one stream that one projection takes.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// A line that is longer is split.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Holes are punched in pieces of this size: smaller ones free nothing.
const HOLE_BYTES: u64 = 1024 * 1024;
const FILE_MODE: u32 = 0o600;

/// The log of one sandbox.
#[derive(Debug)]
struct Log {
    console: PathBuf,
    config: LogConfig,
    streams: [Stream; 2],
    cursor: File,
}

#[derive(Debug)]
struct Stream {
    name: &'static str,
    raw: File,
    /// Bytes that were projected.
    at: u64,
    /// Bytes up to here were given back.
    punched: u64,
}

/// The projections of one client, by sandbox.
#[derive(Debug, Default, Clone)]
pub(super) struct Projections(Arc<Mutex<HashMap<String, Running>>>);

#[derive(Debug)]
struct Running {
    log: Arc<Mutex<Log>>,
    ticker: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ticker.abort();
    }
}

/// Where the process writes a stream.
pub(super) fn raw_path(console: &Path, stream: &str) -> PathBuf {
    console.with_file_name(format!("{stream}.raw"))
}

/// Makes the files that the process appends to. Those of an earlier start stay.
pub(super) fn prepare(console: &Path) -> io::Result<(PathBuf, PathBuf)> {
    if let Some(folder) = console.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let make = |stream| {
        let path = raw_path(console, stream);
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(&path)?;
        // The process opens its own /dev/stdout with its own rights.
        chown(&path, Some(FIRST_HOST_ID), Some(FIRST_HOST_ID))?;
        Ok::<_, io::Error>(path)
    };
    Ok((make(STDOUT)?, make(STDERR)?))
}

impl Projections {
    /// Sees to it that output reaches the log from now on. Needs the runtime that it goes on in.
    pub(super) fn ensure(&self, id: &str, console: &Path, config: &LogConfig) -> io::Result<()> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.get(id).is_some_and(|one| !one.ticker.is_finished()) {
            return Ok(());
        }
        let Some(log) = Log::open(console, config)? else {
            return Ok(());
        };
        let log = Arc::new(Mutex::new(log));
        let ticker = tokio::spawn(tick(log.clone(), id.to_owned()));
        running.insert(id.to_owned(), Running { log, ticker });
        Ok(())
    }

    /// Projects everything that was written, the last line too. The process has ended.
    pub(super) async fn drain(
        &self,
        id: &str,
        console: &Path,
        config: &LogConfig,
    ) -> io::Result<()> {
        let running = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        let log = match &running {
            Some(running) => Some(running.log.clone()),
            None => Log::open(console, config)?.map(|log| Arc::new(Mutex::new(log))),
        };
        let Some(log) = log else { return Ok(()) };
        tokio::task::spawn_blocking(move || lock(&log).project(true))
            .await
            .map_err(io::Error::other)?
    }

    /// Forgets a sandbox and removes its raw files.
    pub(super) fn remove(&self, id: &str, console: &Path) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        for path in [
            raw_path(console, STDOUT),
            raw_path(console, STDERR),
            console.with_file_name(CURSOR_FILE),
        ] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn lock(log: &Mutex<Log>) -> std::sync::MutexGuard<'_, Log> {
    // What a panic left is two numbers behind the log at most.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn tick(log: Arc<Mutex<Log>>, id: String) {
    let mut interval = tokio::time::interval(PROJECTION_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let log = log.clone();
        let projected = tokio::task::spawn_blocking(move || lock(&log).project(false)).await;
        match projected {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // The next one goes on where this one stopped, a full disk for example.
                tracing::warn!(execution_id = %id, %error, "output does not reach the log");
            }
            Err(_) => return,
        }
    }
}

impl Log {
    /// `None` when there is nothing to project: no raw files, so an earlier drain took them all.
    fn open(console: &Path, config: &LogConfig) -> io::Result<Option<Self>> {
        let open = |name: &'static str| {
            let path = raw_path(console, name);
            match OpenOptions::new().read(true).write(true).open(path) {
                Ok(raw) => Ok(Some(Stream {
                    name,
                    raw,
                    at: 0,
                    punched: 0,
                })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let (Some(mut stdout), Some(mut stderr)) = (open(STDOUT)?, open(STDERR)?) else {
            return Ok(None);
        };
        let cursor = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(console.with_file_name(CURSOR_FILE))?;
        let mut numbers = [0; 16];
        if cursor.read_at(&mut numbers, 0)? == numbers.len() {
            let (first, second) = numbers.split_at(8);
            stdout.at = number(first);
            stderr.at = number(second);
        }
        Ok(Some(Self {
            console: console.to_owned(),
            config: config.clone(),
            streams: [stdout, stderr],
            cursor,
        }))
    }

    /// Moves what is new from the raw files to the log.
    fn project(&mut self, has_ended: bool) -> io::Result<()> {
        loop {
            let mut lines = Vec::new();
            let mut is_behind = false;
            let mut positions = [0; 2];
            let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true);
            for (stream, position) in self.streams.iter_mut().zip(&mut positions) {
                let bytes = stream.read()?;
                let is_full = bytes.len() as u64 == CHUNK_BYTES;
                let taken = split(&bytes, has_ended && !is_full, |text| {
                    let entry = LogEntry {
                        log: String::from_utf8_lossy(text).into_owned(),
                        stream: stream.name.to_owned(),
                        time: time.clone(),
                    };
                    serde_json::to_writer(&mut lines, &entry)?;
                    lines.push(b'\n');
                    Ok(())
                })?;
                is_behind |= is_full;
                *position = stream.at + taken as u64;
            }
            let is_new = self
                .streams
                .iter()
                .zip(positions)
                .any(|(stream, position)| stream.at != position);
            if is_new {
                self.append(&lines)?;
                for (stream, position) in self.streams.iter_mut().zip(positions) {
                    stream.at = position;
                }
                self.keep_cursor()?;
            }
            if !is_behind {
                return Ok(());
            }
        }
    }

    fn append(&self, lines: &[u8]) -> io::Result<()> {
        if self.config.driver == LogDriver::None {
            return Ok(());
        }
        let mut file = self.open_console()?;
        let size = file.metadata()?.len();
        if size > 0 && size + lines.len() as u64 > self.config.max_size() {
            drop(file);
            self.rotate()?;
            file = self.open_console()?;
        }
        file.write_all(lines)
    }

    fn open_console(&self) -> io::Result<File> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(&self.console)
    }

    /// Numbers the older files up from the youngest; the oldest goes.
    #[expect(
        clippy::disallowed_methods,
        reason = "a log is no state: it is moved as it is, and a torn rotation loses none of it"
    )]
    fn rotate(&self) -> io::Result<()> {
        let kept = self.config.max_file();
        let numbered = |number: u32| {
            let mut name = self.console.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if kept <= 1 {
            return self.open_console()?.set_len(0);
        }
        for number in (1..kept - 1).rev() {
            let older = numbered(number);
            if older.exists() {
                std::fs::rename(older, numbered(number + 1))?;
            }
        }
        std::fs::rename(&self.console, numbered(1))
    }

    fn keep_cursor(&mut self) -> io::Result<()> {
        let mut numbers = [0; 16];
        numbers[..8].copy_from_slice(&self.streams[0].at.to_le_bytes());
        numbers[8..].copy_from_slice(&self.streams[1].at.to_le_bytes());
        self.cursor.write_all_at(&numbers, 0)?;
        for stream in &mut self.streams {
            stream.give_back();
        }
        Ok(())
    }
}

impl Stream {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.raw.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        (&self.raw).take(CHUNK_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Frees what was projected. A filesystem that cannot keeps it until the sandbox ends.
    fn give_back(&mut self) {
        if self.at - self.punched < HOLE_BYTES {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.raw, flags, self.punched, self.at - self.punched).is_ok() {
            self.punched = self.at;
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(bytes);
    u64::from_le_bytes(array)
}

/// Hands out whole lines, or with `all` the rest as well; how many bytes that were.
fn split(
    bytes: &[u8],
    all: bool,
    mut line: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        let rest = &bytes[taken..];
        let window = &rest[..rest.len().min(MAX_LINE_BYTES)];
        let length = match window.iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if window.len() == MAX_LINE_BYTES => at_sign_boundary(window),
            None if all => window.len(),
            None => break,
        };
        line(&rest[..length])?;
        taken += length;
    }
    Ok(taken)
}

/// Not in the middle of a character, where the text is UTF-8.
fn at_sign_boundary(window: &[u8]) -> usize {
    let is_continuation = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
    let mut end = window.len();
    let lowest = end.saturating_sub(4);
    let mut start = end - 1;
    while start > lowest && is_continuation(window[start]) {
        start -= 1;
    }
    if window[start] >= 0b1100_0000 && std::str::from_utf8(&window[start..]).is_err() {
        end = start;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], all: bool) -> (Vec<String>, usize) {
        let mut lines = Vec::new();
        let taken = split(bytes, all, |line| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        });
        (lines, taken.unwrap())
    }

    #[test]
    fn whole_lines_are_taken_and_the_rest_at_the_end_only() {
        assert_eq!(lines(b"a\nb", false), (vec!["a\n".to_owned()], 2));
        assert_eq!(lines(b"a\nb", true).0, ["a\n", "b"]);
        assert_eq!(lines(b"", true), (Vec::new(), 0));
    }

    #[test]
    fn a_long_line_is_split_between_characters() {
        let text = format!("x{}\n", "\u{20ac}".repeat(MAX_LINE_BYTES));
        let (pieces, taken) = lines(text.as_bytes(), false);
        assert_eq!(taken, text.len());
        assert_eq!(pieces.concat(), text);
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_LINE_BYTES));
    }

    #[tokio::test]
    async fn a_later_client_goes_on_where_the_first_stopped_and_old_files_rotate() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console.log");
        let config = LogConfig {
            options: HashMap::from([
                ("max-size".to_owned(), "200".to_owned()),
                ("max-file".to_owned(), "2".to_owned()),
            ]),
            ..LogConfig::default()
        };
        for stream in [STDOUT, STDERR] {
            std::fs::write(raw_path(&console, stream), "").unwrap();
        }
        let append = |text: &str| {
            let path = raw_path(&console, STDOUT);
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        for text in ["one\ntw", "o\n", "three\n", "four\n"] {
            append(text);
            let mut log = Log::open(&console, &config).unwrap().unwrap();
            log.project(false).unwrap();
        }
        let read = |path: &Path| -> Vec<String> {
            std::fs::read_to_string(path)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str::<LogEntry>(line).unwrap().log)
                .collect()
        };
        let rotated = folder.path().join("console.log.1");
        assert_eq!(read(&rotated), ["one\n", "two\n"]);
        assert_eq!(read(&console), ["three\n", "four\n"]);
        let projections = Projections::default();
        projections.remove("x", &console).unwrap();
        assert!(Log::open(&console, &config).unwrap().is_none());
        projections.drain("x", &console, &config).await.unwrap();
    }
}
