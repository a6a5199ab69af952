//! The service in a process of its own, for tests that kill it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::world::eventually;

/// A process that serves a runtime on a socket. It is killed with the handle.
#[derive(Debug)]
pub struct OwnerProcess {
    binary: PathBuf,
    root: PathBuf,
    socket: PathBuf,
    child: Option<Child>,
}

impl OwnerProcess {
    /// Starts the process and waits until it listens.
    pub async fn spawn(binary: &Path, root: &Path, socket: &Path) -> Self {
        let mut owner = Self {
            binary: binary.to_path_buf(),
            root: root.to_path_buf(),
            socket: socket.to_path_buf(),
            child: None,
        };
        owner.start().await;
        owner
    }

    /// Starts it again on the same state.
    pub async fn start(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let child = Command::new(&self.binary)
            .arg(&self.root)
            .arg(&self.socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let socket = self.socket.clone();
        eventually("the owner listens", || UnixStream::connect(&socket).is_ok()).await;
    }

    /// SIGKILL, and nothing of it is left when this returns.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for OwnerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
