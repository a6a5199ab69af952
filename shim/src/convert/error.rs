//! Errors of the task face as ttrpc statuses, by the mapping of containerd's errdefs.

use a3sbox_execution::task::TaskError;
use ttrpc::{Code, Error, get_status};

use crate::grouping::GroupingError;
use crate::options::OptionsError;
use crate::policy::PolicyError;

/// One code per class; texts go through as they are.
pub(crate) fn status(error: &TaskError) -> Error {
    let code = match error {
        TaskError::NotFound(_) => Code::NOT_FOUND,
        TaskError::AlreadyExists(_) => Code::ALREADY_EXISTS,
        TaskError::FailedPrecondition(_) => Code::FAILED_PRECONDITION,
        TaskError::InvalidArgument(_) => Code::INVALID_ARGUMENT,
        TaskError::Unsupported(_) => Code::UNIMPLEMENTED,
        TaskError::ResourceExhausted(_) => Code::RESOURCE_EXHAUSTED,
        TaskError::DeadlineExceeded(_) => Code::DEADLINE_EXCEEDED,
        TaskError::PermissionDenied(_) => Code::PERMISSION_DENIED,
        TaskError::Unavailable(_) => Code::UNAVAILABLE,
        // What has no class of its own is unknown to the stock shim too; ctr and kubelet print the text.
        TaskError::WrongState(_) | TaskError::Internal(_) => Code::UNKNOWN,
    };
    Error::RpcStatus(get_status(code, error))
}

/// A request that can never be honoured as it is.
pub(crate) fn invalid(error: &(dyn std::error::Error + 'static)) -> Error {
    Error::RpcStatus(get_status(
        Code::INVALID_ARGUMENT,
        crate::logging::chain(error),
    ))
}

/// Refused options are the caller's fault.
pub(crate) fn from_options(error: &OptionsError) -> Error {
    invalid(error)
}

/// A wish that this node does not grant, or a configuration that is wrong.
pub(crate) fn from_policy(error: &PolicyError) -> Error {
    let code = match error {
        PolicyError::Read { .. } | PolicyError::TooLarge { .. } | PolicyError::Toml { .. } => {
            Code::FAILED_PRECONDITION
        }
        PolicyError::Faults(_) | PolicyError::UnknownIsolation(_) => Code::INVALID_ARGUMENT,
        PolicyError::Weaker { .. } => Code::PERMISSION_DENIED,
        PolicyError::MicroVmUnavailable => Code::UNIMPLEMENTED,
    };
    Error::RpcStatus(get_status(code, crate::logging::chain(error)))
}

/// A bundle whose configuration cannot be read.
pub(crate) fn from_bundle(error: &GroupingError) -> Error {
    let code = match error {
        GroupingError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Code::NOT_FOUND
        }
        GroupingError::Read { .. } => Code::UNKNOWN,
        GroupingError::TooLarge { .. }
        | GroupingError::Parse { .. }
        | GroupingError::SocketPath { .. } => Code::INVALID_ARGUMENT,
    };
    Error::RpcStatus(get_status(code, crate::logging::chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_the_code_of_errdefs() {
        let text = || "why".to_owned();
        let table = [
            (TaskError::NotFound(text()), Code::NOT_FOUND),
            (TaskError::AlreadyExists(text()), Code::ALREADY_EXISTS),
            (
                TaskError::FailedPrecondition(text()),
                Code::FAILED_PRECONDITION,
            ),
            (TaskError::InvalidArgument(text()), Code::INVALID_ARGUMENT),
            (TaskError::Unsupported(text()), Code::UNIMPLEMENTED),
            (
                TaskError::ResourceExhausted(text()),
                Code::RESOURCE_EXHAUSTED,
            ),
            (TaskError::DeadlineExceeded(text()), Code::DEADLINE_EXCEEDED),
            (TaskError::PermissionDenied(text()), Code::PERMISSION_DENIED),
            (TaskError::Unavailable(text()), Code::UNAVAILABLE),
            (TaskError::WrongState(text()), Code::UNKNOWN),
            (TaskError::Internal(text()), Code::UNKNOWN),
        ];
        for (error, code) in table {
            let Error::RpcStatus(found) = status(&error) else {
                panic!("not a status")
            };
            assert_eq!(found.code(), code, "{error:?}");
            assert_eq!(found.message, "why");
        }
    }
}
