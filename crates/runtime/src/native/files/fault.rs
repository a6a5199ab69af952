//! Why a file operation did not do what it was asked, and what the caller is told.

use std::io;

use a3sbox_oci::{Error, ErrorCode};
use rustix::io::Errno;

#[derive(Debug)]
pub(super) enum Fault {
    /// About a path of the container: the answer of its filesystem, or of a rule of ours about it.
    Path { code: ErrorCode, message: String },
    /// About the container as a whole.
    Container { code: ErrorCode, message: String },
}

impl Fault {
    /// The kernel refused something about `path`.
    pub(super) fn at(path: &str) -> impl Fn(io::Error) -> Self {
        move |error| {
            let (code, words) = words(&error);
            Self::Path {
                code,
                message: format!("{path:?}: {words}"),
            }
        }
    }

    pub(super) fn refused(path: &str, code: ErrorCode, words: &str) -> Self {
        Self::Path {
            code,
            message: format!("{path:?}: {words}"),
        }
    }

    pub(super) fn gone() -> Self {
        Self::Container {
            code: ErrorCode::FailedPrecondition,
            message: "the container has ended".to_owned(),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Path { code, message } => Self::of_path(code, message),
            Fault::Container { code, message } => Self::new(code, message),
        }
    }
}

/// Code and words by errno; clients look for "not found".
fn words(error: &io::Error) -> (ErrorCode, String) {
    let plain = |code, words: &str| (code, words.to_owned());
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => plain(ErrorCode::NotFound, "not found"),
        Some(Errno::LOOP) => plain(
            ErrorCode::FailedPrecondition,
            "too many levels of symbolic links, or a link of the kernel's own",
        ),
        Some(Errno::ACCESS | Errno::PERM) => {
            plain(ErrorCode::PermissionDenied, "permission denied")
        }
        Some(Errno::ROFS) => plain(ErrorCode::PermissionDenied, "read-only file system"),
        Some(Errno::NOSPC | Errno::DQUOT) => plain(ErrorCode::ResourceExhausted, "no space left"),
        Some(Errno::EXIST | Errno::NOTEMPTY) => {
            plain(ErrorCode::FailedPrecondition, "it exists already")
        }
        Some(Errno::ISDIR) => plain(ErrorCode::FailedPrecondition, "it is a directory"),
        Some(Errno::XDEV) => plain(
            ErrorCode::FailedPrecondition,
            "it would go from one filesystem into another",
        ),
        Some(Errno::BUSY) => plain(ErrorCode::FailedPrecondition, "something is mounted there"),
        _ => (ErrorCode::Internal, error.to_string()),
    }
}
