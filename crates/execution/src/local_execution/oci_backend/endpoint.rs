//! The syntax check of a runtime's address, wherever it came from.

use a3sbox_core::ExecutionManagerResult;
use a3sbox_oci::OciRuntimeEndpoint;

use super::error::runtime_error;

/// # Errors
/// `InvalidRequest`. Nothing is opened.
pub(super) fn validate_endpoint(endpoint: &OciRuntimeEndpoint) -> ExecutionManagerResult<()> {
    let checked = match endpoint {
        OciRuntimeEndpoint::UnixSocket { path } => OciRuntimeEndpoint::unix_socket(path),
        OciRuntimeEndpoint::WindowsNamedPipe { name } => {
            OciRuntimeEndpoint::windows_named_pipe(name)
        }
    };
    checked.map(|_| ()).map_err(runtime_error)
}
