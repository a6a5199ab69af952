//! Why an image was not imported.

use std::io;
use std::path::PathBuf;

use a3sbox_core::error::BoxError;
use a3sbox_durable::DurableError;

use crate::client::ClientError;

pub(super) type ImageResult<T> = std::result::Result<T, ImageError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("cannot {what} {path}")]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The archive or a blob in it is not what it says or must be.
    #[error("{0}")]
    Malformed(String),
    /// Beyond a bound of the store.
    #[error("{what} is over the bound of {bound}")]
    TooLarge { what: &'static str, bound: u64 },
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl ImageError {
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(super) fn malformed<T>(message: impl Into<String>) -> ImageResult<T> {
        Err(Self::Malformed(message.into()))
    }
}

impl From<ImageError> for ClientError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Io { what, path, source } => Self::State(io::Error::new(
                source.kind(),
                format!("cannot {what} {}: {source}", path.display()),
            )),
            ImageError::Durable(error) => Self::State(io::Error::other(error)),
            ImageError::Malformed(_) | ImageError::TooLarge { .. } => {
                Self::Runtime(BoxError::OciImageError(error.to_string()))
            }
        }
    }
}
