//! Statuses, exit statuses and points in time.

use a3sbox_execution::task::{TaskExit, TaskStatus};
use chrono::{DateTime, Utc};
use containerd_shim_protos::types::task::Status;
use protobuf::well_known_types::timestamp::Timestamp;

/// What containerd is told when nobody saw how a process ended: the protocol has numbers only.
const UNKNOWN_EXIT_STATUS: u32 = 255;

/// containerd's word for the state of a process.
pub(crate) const fn status(status: TaskStatus) -> Status {
    match status {
        TaskStatus::Created => Status::CREATED,
        TaskStatus::Running => Status::RUNNING,
        TaskStatus::Pausing => Status::PAUSING,
        TaskStatus::Paused => Status::PAUSED,
        TaskStatus::Stopped => Status::STOPPED,
    }
}

/// The number for an exit; an unknown one is [`UNKNOWN_EXIT_STATUS`].
pub(crate) fn exit_status(exit: &TaskExit) -> u32 {
    exit.status.unwrap_or(UNKNOWN_EXIT_STATUS)
}

/// A point in time as protobuf has it.
pub(crate) fn timestamp(at: DateTime<Utc>) -> Timestamp {
    let mut timestamp = Timestamp::new();
    timestamp.seconds = at.timestamp();
    // A leap second's nanoseconds run above 999,999,999, which the message does not hold.
    timestamp.nanos = i32::try_from(at.timestamp_subsec_nanos().min(999_999_999)).unwrap_or(0);
    timestamp
}

/// The time of something that did not happen: Go's zero time, as the stock shim sends it.
pub(crate) fn never() -> Timestamp {
    const GO_ZERO_TIME_SECONDS: i64 = -62_135_596_800;
    let mut timestamp = Timestamp::new();
    timestamp.seconds = GO_ZERO_TIME_SECONDS;
    timestamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_exit_becomes_255() {
        let exit = |status| TaskExit {
            status,
            exited_at: Utc::now(),
            unknown_because: None,
        };
        assert_eq!(exit_status(&exit(Some(0))), 0);
        assert_eq!(exit_status(&exit(Some(137))), 137);
        assert_eq!(exit_status(&exit(None)), 255);
    }

    #[test]
    fn every_status_has_its_word() {
        let table = [
            (TaskStatus::Created, Status::CREATED),
            (TaskStatus::Running, Status::RUNNING),
            (TaskStatus::Pausing, Status::PAUSING),
            (TaskStatus::Paused, Status::PAUSED),
            (TaskStatus::Stopped, Status::STOPPED),
        ];
        for (ours, theirs) in table {
            assert_eq!(status(ours), theirs);
        }
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let at = DateTime::from_timestamp(981_173_106, 123_456_789).unwrap();
        let converted = timestamp(at);
        assert_eq!(
            (converted.seconds, converted.nanos),
            (981_173_106, 123_456_789)
        );
        let zero = DateTime::parse_from_rfc3339("0001-01-01T00:00:00Z").unwrap();
        assert_eq!(never().seconds, zero.timestamp());
    }
}
