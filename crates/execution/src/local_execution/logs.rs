//! The console log as it was recorded: JSON lines, oldest file first.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use a3sbox_core::{
    ExecutionGeneration, ExecutionId, ExecutionManagerError, ExecutionManagerResult, LogConfig,
    LogEntry,
};
use a3sbox_durable::record::read;

use super::evidence::internal;
use super::manager::LocalExecutionManager;
use crate::store::error_chain;

/// Largest log file that is read whole.
const MAX_LOG_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Most rotated files that are looked for, whatever the configuration says.
const MAX_ROTATED_FILES: u32 = 100;

impl LocalExecutionManager {
    pub(super) async fn read_execution_logs(
        &self,
        execution_id: &ExecutionId,
        generation: ExecutionGeneration,
    ) -> ExecutionManagerResult<Vec<LogEntry>> {
        let record = self.require_current(execution_id, generation)?;
        let files = files_of(&record.console_log, &record.log_config);
        tokio::task::spawn_blocking(move || {
            let mut entries = Vec::new();
            for file in files {
                read_file(&file, &mut entries)?;
            }
            Ok(entries)
        })
        .await
        .map_err(|error| internal(format!("the log was not read: {error}")))?
    }
}

/// Rotated files are numbered from the youngest.
fn files_of(log: &Path, config: &LogConfig) -> Vec<PathBuf> {
    let rotated = config.max_file().saturating_sub(1).min(MAX_ROTATED_FILES);
    (1..=rotated)
        .rev()
        .map(|number| {
            let mut name = log.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        })
        .chain(std::iter::once(log.to_path_buf()))
        .collect()
}

fn read_file(path: &Path, entries: &mut Vec<LogEntry>) -> ExecutionManagerResult<()> {
    let bytes = match read(path, MAX_LOG_FILE_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(()),
        Err(error) if error.io_kind() == Some(ErrorKind::NotADirectory) => return Ok(()),
        Err(error) => return Err(ExecutionManagerError::Unavailable(error_chain(&error))),
    };
    // The last line may be half written; a line that is no entry was not written by us.
    entries.extend(
        bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok()),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_come_first_and_half_lines_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("console.log");
        let line = |text: &str| {
            format!(
                "{{\"log\":\"{text}\\n\",\"stream\":\"stdout\",\"time\":\"2026-12-01T00:00:00Z\"}}\n"
            )
        };
        std::fs::write(dir.path().join("console.log.2"), line("a")).unwrap();
        std::fs::write(dir.path().join("console.log.1"), line("b")).unwrap();
        std::fs::write(&log, format!("{}{{\"log\":\"ha", line("c"))).unwrap();
        let mut entries = Vec::new();
        for file in files_of(&log, &LogConfig::default()) {
            read_file(&file, &mut entries).unwrap();
        }
        let texts: Vec<_> = entries.iter().map(|entry| entry.log.as_str()).collect();
        assert_eq!(texts, ["a\n", "b\n", "c\n"]);
    }
}
