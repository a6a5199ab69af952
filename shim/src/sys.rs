//! The only unsafe code of the shim: calls of the C library and the kernel that no safe crate offers.
#![expect(
    unsafe_code,
    reason = "mallopt, malloc_trim, core scheduling, loop devices and mapped mounts have no safe wrapper in rustix or nix"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Keeps the allocator small: one arena instead of one per thread, and large blocks given back at once.
pub(crate) fn tune_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only changes parameters of the allocator; it is called before threads exist.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
    }
}

/// Gives unused heap back to the kernel.
pub(crate) fn trim_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own lock and touches no memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Puts this process group into a core-scheduling domain of its own.
pub(crate) fn own_core_scheduling() -> io::Result<()> {
    const PR_SCHED_CORE: libc::c_int = 62;
    const PR_SCHED_CORE_CREATE: libc::c_ulong = 1;
    const SCOPE_PROCESS_GROUP: libc::c_ulong = 2;
    const THIS_PROCESS: libc::c_ulong = 0;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: this prctl takes numbers only and changes scheduling alone.
    let result = unsafe {
        libc::prctl(
            PR_SCHED_CORE,
            PR_SCHED_CORE_CREATE,
            THIS_PROCESS,
            SCOPE_PROCESS_GROUP,
            UNUSED,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Number of a loop device that was free a moment ago.
pub(crate) fn free_loop_device(control: &File) -> io::Result<u32> {
    const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
    // SAFETY: the request takes no argument; the descriptor is open for the call's duration.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// How a loop device shows its file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoopFlags {
    pub(crate) read_only: bool,
    pub(crate) direct_io: bool,
}

/// Joins a file to a loop device that clears itself when its last user goes.
pub(crate) fn configure_loop(device: &File, backing: &File, flags: LoopFlags) -> io::Result<()> {
    const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
    const LO_FLAGS_READ_ONLY: u32 = 1;
    const LO_FLAGS_AUTOCLEAR: u32 = 4;
    const LO_FLAGS_DIRECT_IO: u32 = 16;

    // `struct loop_info64` and `struct loop_config` of linux/loop.h.
    #[repr(C)]
    struct LoopInfo64 {
        numbers: [u64; 5],
        number: u32,
        encrypt_type: u32,
        encrypt_key_size: u32,
        flags: u32,
        file_name: [u8; 64],
        crypt_name: [u8; 64],
        encrypt_key: [u8; 32],
        init: [u64; 2],
    }
    #[repr(C)]
    struct LoopConfig {
        fd: u32,
        block_size: u32,
        info: LoopInfo64,
        reserved: [u64; 8],
    }

    let mut bits = LO_FLAGS_AUTOCLEAR;
    if flags.read_only {
        bits |= LO_FLAGS_READ_ONLY;
    }
    if flags.direct_io {
        bits |= LO_FLAGS_DIRECT_IO;
    }
    let fd = u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?;
    let config = LoopConfig {
        fd,
        block_size: 0,
        info: LoopInfo64 {
            numbers: [0; 5],
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: bits,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: `config` has the kernel's layout for this request and lives through the call, which reads it.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Shifts the owners of a detached mount tree by the maps of a user namespace.
pub(crate) fn idmap_tree(
    tree: BorrowedFd<'_>,
    user_namespace: BorrowedFd<'_>,
    read_only: bool,
) -> io::Result<()> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    let mut attr_set = MOUNT_ATTR_IDMAP;
    if read_only {
        attr_set |= MOUNT_ATTR_RDONLY;
    }
    let attributes = libc::mount_attr {
        attr_set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?,
    };
    // SAFETY: both descriptors are open, the path is an empty string with its terminator, and the kernel
    // reads `attributes`, whose size is given, during the call alone.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
