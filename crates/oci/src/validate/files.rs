//! File and filesystem requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{ValidateRequest, refuse_nul};
use crate::error::{Error, Result};
use crate::limits::{
    MAX_FILE_TRANSFER_BYTES, MAX_FILESYSTEM_DEPTH, MAX_FILESYSTEM_PATH_BYTES,
    MAX_FILESYSTEM_USER_BYTES,
};
use crate::request::{FileOp, FileRequest, FilesystemOp, FilesystemRequest};

impl ValidateRequest for FileRequest {
    fn validate(&self) -> Result<()> {
        check_path("path", &self.path)?;
        check_user(self.user.as_deref())?;
        match self.op {
            FileOp::Upload => {
                if self.context.is_none() {
                    return Err(Error::invalid("an upload needs an operation context"));
                }
                let data = self
                    .data
                    .as_deref()
                    .ok_or_else(|| Error::invalid("an upload needs data"))?;
                check_upload(data)
            }
            FileOp::Download if self.context.is_some() => {
                Err(Error::invalid("a download takes no operation context"))
            }
            FileOp::Download if self.data.is_some() => {
                Err(Error::invalid("a download takes no data"))
            }
            FileOp::Download => Ok(()),
        }
    }
}

impl ValidateRequest for FilesystemRequest {
    fn validate(&self) -> Result<()> {
        check_path("path", &self.path)?;
        check_user(self.user.as_deref())?;
        match (self.op, &self.destination) {
            (FilesystemOp::Move, Some(destination)) => check_path("destination", destination)?,
            (FilesystemOp::Move, None) => {
                return Err(Error::invalid("a move needs a destination"));
            }
            (_, Some(_)) => return Err(Error::invalid("only a move takes a destination")),
            (_, None) => {}
        }
        if self.op == FilesystemOp::ListDir {
            if self.depth > MAX_FILESYSTEM_DEPTH {
                return Err(Error::invalid(format!(
                    "depth {} is more than {MAX_FILESYSTEM_DEPTH}",
                    self.depth
                )));
            }
        } else if self.depth != 0 {
            return Err(Error::invalid("only a listing takes a depth"));
        }
        match (self.op.is_mutating(), &self.context) {
            (true, None) => Err(Error::invalid(
                "an operation that changes something needs an operation context",
            )),
            (false, Some(_)) => Err(Error::invalid(
                "an operation that only looks takes no operation context",
            )),
            (true, Some(_)) | (false, None) => Ok(()),
        }
    }
}

fn check_path(what: &str, path: &str) -> Result<()> {
    if path.is_empty() || path.len() > MAX_FILESYSTEM_PATH_BYTES {
        return Err(Error::invalid(format!(
            "{what} must have 1 to {MAX_FILESYSTEM_PATH_BYTES} bytes"
        )));
    }
    refuse_nul(what, path)?;
    if let Some(rest) = path.strip_prefix('~')
        && !rest.is_empty()
        && !rest.starts_with('/')
    {
        return Err(Error::invalid(format!(
            "{what} may begin with ~ only as ~ or ~/"
        )));
    }
    Ok(())
}

fn check_user(user: Option<&str>) -> Result<()> {
    let Some(user) = user else { return Ok(()) };
    if user.is_empty() || user.len() > MAX_FILESYSTEM_USER_BYTES {
        return Err(Error::invalid(format!(
            "user must have 1 to {MAX_FILESYSTEM_USER_BYTES} bytes"
        )));
    }
    refuse_nul("user", user)
}

/// Decodes piece by piece, so that the check of a large upload takes no second copy of it.
fn check_upload(data: &str) -> Result<()> {
    const PIECE: usize = 8 * 1024;
    const DECODED: usize = PIECE / 4 * 3;
    if data.len() > MAX_FILE_TRANSFER_BYTES.div_ceil(3) * 4 {
        return Err(too_large());
    }
    let malformed = || Error::invalid("data is not valid base64");
    let mut buffer = [0; DECODED];
    let mut total = 0;
    let mut pieces = data.as_bytes().chunks(PIECE).peekable();
    while let Some(piece) = pieces.next() {
        let length = STANDARD
            .decode_slice(piece, &mut buffer)
            .map_err(|_| malformed())?;
        // Padding in the middle would make a piece shorter than its text.
        if pieces.peek().is_some() && length != DECODED {
            return Err(malformed());
        }
        total += length;
    }
    if total > MAX_FILE_TRANSFER_BYTES {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> Error {
    Error::invalid(format!(
        "a file transfer is limited to {MAX_FILE_TRANSFER_BYTES} bytes"
    ))
}
