//! Identity of a process on this host: its id, when it started, and in which boot.

use std::sync::OnceLock;

/// Start time of a live process in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
///
/// With the id it names a process exactly: ids are reused, pairs are not. `None` when there is no such
/// process, and on systems without that file.
#[must_use]
pub fn pid_start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    start_time_of(&stat)
}

/// Fields are counted behind the command, which is in parentheses and may hold anything.
fn start_time_of(stat: &str) -> Option<u64> {
    const START_TIME_AFTER_COMMAND: usize = 19;
    let after_command = &stat[stat.rfind(')')? + 1..];
    after_command
        .split_ascii_whitespace()
        .nth(START_TIME_AFTER_COMMAND)?
        .parse()
        .ok()
}

/// The identity of this boot of the host. `None` on systems without that file.
#[must_use]
pub fn boot_id() -> Option<&'static str> {
    static BOOT_ID: OnceLock<Option<String>> = OnceLock::new();
    BOOT_ID
        .get_or_init(|| {
            let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            Some(text.trim().to_owned()).filter(|id| !id.is_empty())
        })
        .as_deref()
}

/// Whether something recorded in a boot can be told to be of another one than this.
#[must_use]
pub fn is_another_boot(recorded: Option<&str>, current: Option<&str>) -> bool {
    matches!((recorded, current), (Some(recorded), Some(current)) if recorded != current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_a_stable_start_time() {
        let pid = std::process::id();
        assert!(pid_start_time(pid).is_some());
        assert_eq!(pid_start_time(pid), pid_start_time(pid));
        assert_eq!(pid_start_time(0), None);
    }

    #[test]
    fn an_unknown_boot_is_never_another_one() {
        assert!(boot_id().is_some());
        assert!(is_another_boot(Some("a"), Some("b")));
        for same in [(Some("a"), Some("a")), (None, Some("a")), (Some("a"), None)] {
            assert!(!is_another_boot(same.0, same.1), "{same:?}");
        }
    }

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        assert_eq!(start_time_of(stat), Some(12345));
    }
}
