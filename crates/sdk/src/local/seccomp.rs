//! The system calls that a sandbox's processes may make.
//!
//! A list of what programs need. What is not on it fails with "operation not permitted": mounts and
//! namespaces, modules, keys, tracing, other ways to program the kernel (bpf, io_uring, userfaultfd, perf), clocks,
//! and whatever a newer kernel brings. The engine passes over names that the processor does not have.

use serde_json::{Value, json};

/// Calls without a condition.
const ALLOWED: &str = "\
    accept accept4 access alarm arch_prctl bind brk capget capset chdir chmod chown chroot \
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat \
    dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait \
    eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate \
    fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock \
    fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_waitv futimesat \
    get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid \
    getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom \
    getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday \
    getuid getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel \
    io_destroy io_getevents io_setup io_submit ioctl ioprio_get ioprio_set kill \
    landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link \
    linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise membarrier \
    memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap \
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal \
    msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat \
    openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect \
    poll ppoll prctl pread64 preadv preadv2 prlimit64 process_madvise process_mrelease pselect6 \
    pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg \
    remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq \
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend \
    rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min \
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval \
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select \
    semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list \
    set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid \
    setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid \
    setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice \
    stat statfs statx symlink symlinkat sync sync_file_range sync_file_range2 syncfs sysinfo tee \
    tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime \
    timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink \
    unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev";
/// `clone` may not make namespaces: the flags of all of them.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// Not `personality` with another meaning than the usual ones.
const PERSONALITIES: [u64; 3] = [0, 0x8, 0xffff_ffff];
/// Sockets of virtual machines would reach the host.
const AF_VSOCK: u64 = 40;
const ENOSYS: u32 = 38;

/// The profile, as a config names it.
pub(super) fn profile() -> Value {
    let mut rules = vec![
        json!({"names": ALLOWED.split_whitespace().collect::<Vec<_>>(), "action": "SCMP_ACT_ALLOW"}),
        json!({
            "names": ["clone"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
        }),
        // Its flags are behind a pointer that no filter reads; libraries then use clone.
        json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}),
        json!({
            "names": ["socket"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_NE"}]
        }),
    ];
    rules.extend(PERSONALITIES.map(|value| {
        json!({
            "names": ["personality"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]
        })
    }));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": architectures(),
        "syscalls": rules,
    })
}

/// Its own only: a program of another word size would go around the list by other numbers.
fn architectures() -> &'static [&'static str] {
    match std::env::consts::ARCH {
        "x86_64" => &["SCMP_ARCH_X86_64"],
        "aarch64" => &["SCMP_ARCH_AARCH64"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_the_kernel_is_not_allowed() {
        let allowed: Vec<_> = ALLOWED.split_whitespace().collect();
        for name in [
            "mount",
            "unshare",
            "setns",
            "bpf",
            "ptrace",
            "keyctl",
            "io_uring_setup",
        ] {
            assert!(!allowed.contains(&name), "{name}");
        }
        for name in [
            "read",
            "execve",
            "futex",
            "openat",
            "getrandom",
            "rseq",
            "seccomp",
        ] {
            assert!(allowed.contains(&name), "{name}");
        }
    }
}
