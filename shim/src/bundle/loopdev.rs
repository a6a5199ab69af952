//! A loop device for an image file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys;

/// Attempts at a free device; another process may take the one that was free a moment ago.
const ATTEMPTS: u32 = 100;
/// Pause between attempts.
const RETRY: Duration = Duration::from_millis(2);

/// A configured device. It clears itself once neither this nor a mount holds it.
pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    _held: File,
}

/// Joins a file to a free loop device.
pub(super) fn attach(file: &Path, read_only: bool, direct_io: bool) -> io::Result<LoopDevice> {
    let control = File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    let backing = File::options().read(true).write(!read_only).open(file)?;
    let flags = sys::LoopFlags {
        read_only,
        direct_io,
    };
    for _ in 0..ATTEMPTS {
        let path = PathBuf::from(format!("/dev/loop{}", sys::free_loop_device(&control)?));
        let device = File::options().read(true).write(!read_only).open(&path)?;
        match sys::configure_loop(&device, &backing, flags) {
            Ok(()) => {
                return Ok(LoopDevice {
                    path,
                    _held: device,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(RETRY),
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}
