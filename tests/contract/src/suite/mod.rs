//! The cases, by subject. Each takes a fresh world and leaves nothing.

pub mod exec;
pub mod files;
pub mod kill;
pub mod launch;
pub mod observe;
pub mod pause;
pub mod refuse;
pub mod session;
pub mod update;

use a3sbox_core::{ExecutionManagerError, ReconcileOutcome};

/// Hands every case to a macro, which makes a test of each in its own place.
#[macro_export]
macro_rules! for_each_behaviour {
    ($callback:ident) => {
        $callback! {
            launch::a_launch_is_one_process_with_its_identity;
            launch::a_preparation_that_does_not_fit_leaves_nothing;
            launch::evidence_of_another_config_removes_the_container;
            launch::evidence_of_other_attachments_removes_the_container;
            launch::a_lost_create_answer_makes_no_second_container;
            launch::a_lost_start_answer_makes_no_second_start;
            launch::nothing_runs_before_its_log_projection;
            launch::creation_with_a_used_operation_id;
            refuse::isolation_that_the_driver_lacks;
            refuse::a_runtime_without_the_attachment_schema;
            refuse::verbs_that_the_runtime_lacks;
            refuse::stale_generations_before_any_effect;
            refuse::session_modes_that_the_runtime_lacks;
            refuse::malformed_commands;
            refuse::files_that_a_runtime_does_not_serve;
            exec::a_lost_answer_is_replayed_by_another_manager;
            exec::a_relative_command_is_found_in_the_rootfs;
            exec::a_used_key_with_another_command_starts_nothing;
            exec::a_timeout_kills_the_process;
            exec::a_caller_that_hangs_up_keeps_the_timeout;
            session::lost_input_is_written_once;
            session::a_terminal_has_its_size_and_takes_signals;
            files::transfers_and_changes_happen_once;
            pause::each_pause_and_resume_is_a_generation;
            pause::a_pause_without_effect_is_rolled_back;
            pause::lost_answers_are_settled_without_a_second_effect;
            pause::a_paused_container_is_observed;
            pause::a_snapshot_freezes_for_its_capture_only;
            update::limits_change_once_per_operation;
            update::a_lost_answer_is_settled_by_the_same_operation;
            update::an_exit_wins_over_an_update;
            kill::a_trapped_signal_gives_the_exit_code;
            kill::a_signal_that_is_ignored_becomes_a_kill;
            kill::an_exit_of_its_own_is_kept;
            kill::a_lost_kill_or_delete_answer_is_settled;
            observe::processes_statistics_and_events;
        }
    };
}

#[track_caller]
pub(crate) fn assert_unavailable<T: std::fmt::Debug>(
    result: Result<T, ExecutionManagerError>,
    needle: &str,
) {
    match result {
        Err(ExecutionManagerError::Unavailable(message)) => {
            assert!(message.contains(needle), "{message:?} lacks {needle:?}");
        }
        other => panic!("{other:?} is not unavailable"),
    }
}

#[track_caller]
pub(crate) fn assert_invalid<T: std::fmt::Debug>(
    result: Result<T, ExecutionManagerError>,
    needle: &str,
) {
    match result {
        Err(ExecutionManagerError::InvalidRequest(message)) => {
            assert!(message.contains(needle), "{message:?} lacks {needle:?}");
        }
        other => panic!("{other:?} is not an invalid request"),
    }
}

#[track_caller]
pub(crate) fn assert_internal<T: std::fmt::Debug>(
    result: Result<T, ExecutionManagerError>,
    needle: &str,
) {
    match result {
        Err(ExecutionManagerError::Internal(message)) => {
            assert!(message.contains(needle), "{message:?} lacks {needle:?}");
        }
        other => panic!("{other:?} is not internal"),
    }
}

#[track_caller]
pub(crate) fn assert_conflict<T: std::fmt::Debug>(result: Result<T, ExecutionManagerError>) {
    assert!(
        matches!(result, Err(ExecutionManagerError::Conflict { .. })),
        "{result:?}"
    );
}

#[track_caller]
pub(crate) fn ready(outcome: ReconcileOutcome) -> a3sbox_core::ExecutionLease {
    match outcome {
        ReconcileOutcome::Ready(lease) => lease,
        other => panic!("{other:?} is not ready"),
    }
}
