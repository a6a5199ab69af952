//! The streams on real fifos, pipes, terminals and processes.

mod binary;
mod capture;
mod fifo;
mod stdin;
mod terminal;

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use a3sbox_oci::StdioUris;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::pty::OpenptFlags;
use tempfile::TempDir;

use super::open::ChildFiles;
use super::{ChildStdio, ConsoleSocket, StdioError, StdioOwner, StdioSpec, Streams, open};

/// No single step of a test may take longer.
const STEP_DEADLINE: Duration = Duration::from_secs(60);
/// What the large transfers move.
const MANY_BYTES: usize = 64 * 1024 * 1024;

/// A folder with fifos.
struct World {
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("a3sbox-stdio-")
                .tempdir()
                .unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn uri(&self, name: &str) -> Option<String> {
        Some(self.path(name).to_str().unwrap().to_owned())
    }

    /// Makes a fifo and returns its plain path as a name.
    fn fifo(&self, name: &str) -> Option<String> {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            self.path(name),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o700),
            0,
        )
        .unwrap();
        self.uri(name)
    }
}

async fn open_uris(uris: &StdioUris) -> Result<(Streams, ChildStdio), StdioError> {
    let owner = StdioOwner {
        id: "c1",
        namespace: "ns1",
        pumped: false,
    };
    open(StdioSpec::Uris(uris), &owner).await
}

async fn open_files(uris: &StdioUris) -> (Streams, ChildFiles) {
    files(open_uris(uris).await.unwrap())
}

fn files(opened: (Streams, ChildStdio)) -> (Streams, ChildFiles) {
    match opened {
        (streams, ChildStdio::Files(files)) => (streams, files),
        (_, ChildStdio::Console(_)) => panic!("a terminal was opened"),
    }
}

fn console(opened: (Streams, ChildStdio)) -> (Streams, ConsoleSocket) {
    match opened {
        (streams, ChildStdio::Console(socket)) => (streams, socket),
        (_, ChildStdio::Files(_)) => panic!("no terminal was opened"),
    }
}

/// Stands in for the engine: runs a shell with the three files; ours are closed when it returns.
fn spawn(script: &str, files: ChildFiles) -> Child {
    Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(Stdio::from(files.stdin))
        .stdout(Stdio::from(files.stdout))
        .stderr(Stdio::from(files.stderr))
        .spawn()
        .unwrap()
}

/// Stands in for the engine with a terminal: makes one, sends its master, runs a shell on its slave.
fn spawn_on_terminal(script: &str, socket: &ConsoleSocket) -> Child {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave: OwnedFd = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap()
        .into();
    send_descriptor(socket.path(), &master);
    spawn(
        script,
        ChildFiles {
            stdin: slave.try_clone().unwrap(),
            stdout: slave.try_clone().unwrap(),
            stderr: slave,
        },
    )
}

fn send_descriptor(path: &Path, fd: &OwnedFd) {
    let stream = UnixStream::connect(path).unwrap();
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    rustix::net::sendmsg(
        &stream,
        &[IoSlice::new(b"/dev/ptmx")],
        &mut control,
        SendFlags::empty(),
    )
    .unwrap();
}

/// Runs blocking work beside the streams, within the deadline of a step.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    within(async { tokio::task::spawn_blocking(work).await.unwrap() }).await
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(STEP_DEADLINE, work)
        .await
        .expect("a step took too long")
}

async fn ended(mut child: Child) -> ExitStatus {
    blocking(move || child.wait().unwrap()).await
}

/// A client that reads a fifo to its end, beginning now.
fn client(path: Option<String>) -> tokio::task::JoinHandle<Vec<u8>> {
    let mut fifo = client_end(path);
    tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        fifo.read_to_end(&mut all).unwrap();
        all
    })
}

/// The reading end of a client; blocks while nobody holds a writing end.
fn client_end(path: Option<String>) -> File {
    File::open(path.unwrap()).unwrap()
}

async fn read_all(client: tokio::task::JoinHandle<Vec<u8>>) -> Vec<u8> {
    within(async { client.await.unwrap() }).await
}

/// Reads until a text has come; gives the end back.
async fn read_until(mut fifo: File, wanted: &'static str) -> File {
    blocking(move || {
        let mut seen = Vec::new();
        let mut piece = [0_u8; 256];
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            let read = fifo.read(&mut piece).unwrap();
            assert_ne!(read, 0, "the end came before {wanted:?}");
            seen.extend_from_slice(&piece[..read]);
        }
        fifo
    })
    .await
}

/// A client that writes to the stdin fifo and closes its end.
async fn write_input(path: Option<String>, bytes: &'static [u8]) {
    blocking(move || {
        OpenOptions::new()
            .write(true)
            .open(path.unwrap())
            .unwrap()
            .write_all(bytes)
            .unwrap();
    })
    .await;
}

/// The bytes that `many_bytes_script` writes.
fn assert_many_bytes(got: &[u8]) {
    assert_eq!(got.len(), MANY_BYTES);
    let line = b"0123456789abcde\n";
    assert!(
        got.chunks(line.len()).all(|piece| piece == line),
        "bytes were changed or moved"
    );
}

/// Writes 64 MiB of known lines.
fn many_bytes_script() -> String {
    format!("yes 0123456789abcde | head -c {MANY_BYTES}")
}

/// Writes more than a fifo holds, but not more than fifo, pump and pipe together, then waits.
fn more_than_a_fifo_script(done: &Path) -> String {
    let done = done.to_str().unwrap();
    format!("head -c 70000 /dev/zero; : >{done}; exec sleep 1000")
}

/// Waits until a condition holds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + STEP_DEADLINE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
