//! The console socket: the engine makes the terminal inside the container and sends its master.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use a3sbox_oci::TerminalSize;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::termios::Winsize;
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use super::error::StdioError;

/// How long the master may take after the engine's call returned; it was sent before that.
const CONSOLE_DEADLINE: Duration = Duration::from_secs(10);
/// Size of a terminal that nobody gave one.
const DEFAULT_SIZE: TerminalSize = TerminalSize {
    width: 80,
    height: 24,
};

/// A socket that waits for one terminal. Its folder goes with it.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
    _folder: TempDir,
}

impl ConsoleSocket {
    /// Makes the socket in a private folder with a short name: socket paths end at 107 bytes, and the
    /// folders of a container may be longer.
    pub(super) fn bind() -> Result<Self, StdioError> {
        let make = || {
            let folder = tempfile::Builder::new().prefix("a3sbox-pty-").tempdir()?;
            let path = folder.path().join("pty.sock");
            let listener = UnixListener::bind(&path)?;
            Ok(Self {
                listener,
                path,
                _folder: folder,
            })
        };
        make().map_err(StdioError::prepare("the console socket"))
    }

    /// What the engine gets as `--console-socket`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the master that the engine sent.
    pub(super) async fn receive(self) -> Result<OwnedFd, StdioError> {
        let seconds = CONSOLE_DEADLINE.as_secs();
        let received = async {
            let (stream, _) = self.listener.accept().await?;
            receive_descriptor(&stream).await
        };
        let master = match tokio::time::timeout(CONSOLE_DEADLINE, received).await {
            Err(_) => return Err(StdioError::NoConsole { seconds }),
            Ok(result) => result.map_err(StdioError::prepare("the console"))?,
        };
        match master {
            Some(master) if rustix::termios::isatty(&master) => Ok(master),
            _ => Err(StdioError::NotAConsole),
        }
    }
}

/// Waits for one message with one descriptor. More than one is refused.
async fn receive_descriptor(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    loop {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, || receive_now(stream.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

fn receive_now(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    // The name of the terminal comes with it; it is not used.
    let mut name = [0_u8; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut name)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(None);
    }
    let mut received: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    Ok(if received.len() == 1 {
        received.pop()
    } else {
        None
    })
}

/// Sets the size that was asked for; without one a terminal of no size gets the default.
pub(super) fn set_initial_size(
    master: BorrowedFd<'_>,
    asked: Option<TerminalSize>,
) -> io::Result<()> {
    let current = rustix::termios::tcgetwinsize(master)?;
    match asked {
        Some(size) => resize(master, size),
        None if current.ws_row == 0 || current.ws_col == 0 => resize(master, DEFAULT_SIZE),
        None => Ok(()),
    }
}

/// Changes the size; the foreground group of the terminal gets SIGWINCH from the kernel.
pub(super) fn resize(master: BorrowedFd<'_>, size: TerminalSize) -> io::Result<()> {
    Ok(rustix::termios::tcsetwinsize(
        master,
        Winsize {
            ws_row: size.height,
            ws_col: size.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )?)
}
