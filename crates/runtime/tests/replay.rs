//! Every mutating verb, repeated: the same request has one effect and one answer, another request under the
//! same operation id is refused. What counts the effects is outside of the service: what processes wrote, what
//! the kernel has.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use a3sbox_oci::{
    CloseStdinRequest, ContainerOperationRequest, ContainerTarget, DeleteMode,
    DeleteProcessRequest, DeleteRequest, Error, ErrorCode, EventsRequest, ExecRequest, KillRequest,
    LinuxResources, OciRuntimeService, OperationContext, ProcessTarget, RuntimeEventKind, Signal,
    SignalProcessRequest, StartRequest, StateRequest, UpdateRequest, WriteStdinRequest,
};
use serde_json::{Value, json};
use support::{World, cgroup_of, context, eventually, target};

/// Tells of its start and of each SIGHUP.
const PROGRAM: &str = "trap 'echo hup >> /out/signals' HUP
echo started >> /out/starts
while :; do sleep 0.02; done";

/// A service and a container whose program writes to `out`.
struct Counted {
    world: World,
    spec: Value,
    out: PathBuf,
}

impl Counted {
    async fn new() -> Self {
        Self::on(World::new().await)
    }

    fn on(world: World) -> Self {
        let out = world.folder().join("out");
        std::fs::create_dir(&out).unwrap();
        let mut spec = world.spec(&["sh", "-c", PROGRAM]);
        spec["root"]["path"] = json!(with_out(spec["root"]["path"].as_str().unwrap()));
        spec["mounts"].as_array_mut().unwrap().push(json!({
            "destination": "/out", "type": "bind", "source": out, "options": ["rbind", "rw"],
        }));
        Self { world, spec, out }
    }

    async fn run(&self) -> ContainerTarget {
        let container = target(&self.world.create_spec(&self.spec).await.unwrap());
        self.world.start(&container).await;
        self.eventually("starts", 1).await;
        container
    }

    fn lines(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(self.out.join(name)).unwrap_or_default();
        text.lines().count()
    }

    async fn eventually(&self, name: &str, count: usize) {
        eventually(name, || self.lines(name) >= count).await;
    }

    /// A file of the container's cgroup.
    fn cgroup_file(&self, controller: &str, name: &str) -> PathBuf {
        let pids = cgroup_of(&self.spec);
        match pids.strip_prefix("/sys/fs/cgroup/pids") {
            Ok(below) => Path::new("/sys/fs/cgroup")
                .join(controller)
                .join(below)
                .join(name),
            Err(_) => pids.join(name),
        }
    }

    fn is_frozen(&self) -> bool {
        let v1 = std::fs::read_to_string(self.cgroup_file("freezer", "freezer.state"));
        let v2 = std::fs::read_to_string(self.cgroup_file("freezer", "cgroup.freeze"));
        v1.is_ok_and(|state| state.trim() == "FROZEN") || v2.is_ok_and(|state| state.trim() == "1")
    }

    async fn end(&self, container: &ContainerTarget) {
        self.world
            .delete(container, DeleteMode::Force)
            .await
            .unwrap();
        self.world.assert_nothing_left();
    }
}

/// The rootfs has a place for the shared folder.
fn with_out(rootfs: &str) -> &str {
    std::fs::create_dir_all(Path::new(rootfs).join("out")).unwrap();
    rootfs
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_eq!(result.unwrap_err().code, ErrorCode::Conflict);
}

fn on(container: &ContainerTarget, context: &OperationContext) -> ContainerOperationRequest {
    ContainerOperationRequest {
        context: context.clone(),
        target: container.clone(),
    }
}

#[tokio::test]
async fn create_makes_one_container() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let request = counted.world.create_request(&counted.spec).await;
    let first = service.create(request.clone()).await.unwrap();
    assert_eq!(service.create(request.clone()).await.unwrap(), first);
    let mut other = request.clone();
    other.bundle = counted
        .world
        .create_request(&counted.world.spec(&["false"]))
        .await
        .bundle;
    other.attachments =
        a3sbox_oci::CreateAttachments::from_bundle(&other.bundle, a3sbox_oci::ProcessIo::default())
            .unwrap();
    assert_conflict(service.create(other).await);
    let procs = std::fs::read_to_string(counted.cgroup_file("pids", "cgroup.procs")).unwrap();
    assert_eq!(procs.lines().count(), 1);
    counted.end(&target(&first)).await;
}

#[tokio::test]
async fn start_runs_the_program_once() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = target(&counted.world.create_spec(&counted.spec).await.unwrap());
    let start = StartRequest {
        context: context(),
        target: container.clone(),
    };
    let first = service.start(start.clone()).await.unwrap();
    counted.eventually("starts", 1).await;
    assert_eq!(service.start(start.clone()).await.unwrap(), first);
    let current = StartRequest {
        target: ContainerTarget::current(container.id.clone()),
        ..start
    };
    assert_conflict(service.start(current).await);
    assert_eq!(counted.lines("starts"), 1);
    counted.end(&container).await;
}

#[tokio::test]
async fn exec_starts_one_process() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = counted.run().await;
    let request = counted.world.exec_request(
        &container,
        "e1",
        &["sh", "-c", "echo ran >> /out/ran; exit 4"],
    );
    let (first, second) =
        tokio::join!(service.exec(request.clone()), service.exec(request.clone()));
    let first = first.unwrap();
    assert_eq!(second.unwrap(), first);
    let status = counted.world.wait_process(&first.target).await.unwrap();
    assert_eq!(status.exit_code, Some(4));
    assert_eq!(service.exec(request.clone()).await.unwrap(), first);
    let other = ExecRequest {
        process: support::process(&["sh", "-c", "echo other >> /out/ran"]),
        ..request.clone()
    };
    assert_conflict(service.exec(other).await);
    // Deleted, its operation is past: it is refused, and the process id is free.
    let delete = DeleteProcessRequest {
        context: context(),
        process: first.target,
    };
    service.delete_process(delete).await.unwrap();
    let late = service.exec(request).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::FailedPrecondition);
    assert_eq!(counted.lines("ran"), 1);
    let again = counted.world.exec(&container, "e1", &["true"]).await;
    let status = counted.world.wait_process(&again).await.unwrap();
    assert_eq!(status.exit_code, Some(0));
    counted.end(&container).await;
}

#[tokio::test]
async fn input_is_written_once_and_closed_once() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = counted.run().await;
    let process = counted
        .world
        .exec(
            &container,
            "cat",
            &["sh", "-c", "cat >> /out/input; echo end >> /out/ends"],
        )
        .await;
    let write = |data: &[u8]| WriteStdinRequest {
        context: context(),
        process: process.clone(),
        data: data.to_vec(),
    };
    let first = write(b"one,");
    for _ in 0..3 {
        service.write_stdin(first.clone()).await.unwrap();
    }
    let other = WriteStdinRequest {
        data: b"other,".to_vec(),
        ..first.clone()
    };
    assert_conflict(service.write_stdin(other).await);
    service.write_stdin(write(b"two")).await.unwrap();
    // Its answer came long ago, else there were no second write.
    let late = service.write_stdin(first.clone()).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::FailedPrecondition);

    let close = CloseStdinRequest {
        context: context(),
        process: process.clone(),
    };
    service.close_stdin(close.clone()).await.unwrap();
    service.close_stdin(close.clone()).await.unwrap();
    let misused = WriteStdinRequest {
        context: close.context,
        ..write(b"late")
    };
    assert_conflict(service.write_stdin(misused).await);
    counted.world.wait_process(&process).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(counted.out.join("input")).unwrap(),
        "one,two"
    );
    assert_eq!(counted.lines("ends"), 1);
    counted.end(&container).await;
}

#[tokio::test]
async fn a_signal_to_a_process_is_sent_once() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = counted.run().await;
    let program = "trap 'echo usr >> /out/usr' USR1
echo ready >> /out/ready
while :; do sleep 0.02; done";
    let process = counted
        .world
        .exec(&container, "trap", &["sh", "-c", program])
        .await;
    counted.eventually("ready", 1).await;
    let signal = |context, number| SignalProcessRequest {
        context,
        process: process.clone(),
        signal: Signal::new(number).unwrap(),
    };
    let first = signal(context(), libc_usr1());
    service.signal_process(first.clone()).await.unwrap();
    counted.eventually("usr", 1).await;
    service.signal_process(first.clone()).await.unwrap();
    assert_conflict(service.signal_process(signal(first.context, 9)).await);
    service
        .signal_process(signal(context(), libc_usr1()))
        .await
        .unwrap();
    counted.eventually("usr", 2).await;
    assert_eq!(counted.lines("usr"), 2);
    counted.end(&container).await;
}

const fn libc_usr1() -> i32 {
    10
}

#[tokio::test]
async fn a_kill_is_sent_once() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = counted.run().await;
    let hup = |context| KillRequest {
        context,
        target: container.clone(),
        signal: Signal::new(1).unwrap(),
        all: false,
    };
    let first = hup(context());
    let answer = service.kill(first.clone()).await.unwrap();
    counted.eventually("signals", 1).await;
    assert_eq!(service.kill(first.clone()).await.unwrap(), answer);
    let all = KillRequest {
        all: true,
        ..first.clone()
    };
    assert_conflict(service.kill(all).await);
    // An intent of its own is a second effect.
    service.kill(hup(context())).await.unwrap();
    counted.eventually("signals", 2).await;
    // So late, with hundreds of other operations in between, it is still known.
    for _ in 0..300 {
        service.pause(on(&container, &context())).await.unwrap();
    }
    assert_eq!(service.kill(first).await.unwrap(), answer);
    service.resume(on(&container, &context())).await.unwrap();
    // The second one has been handled by then, had there been a third.
    service.kill(hup(context())).await.unwrap();
    counted.eventually("signals", 3).await;
    assert_eq!(counted.lines("signals"), 3);
    counted.end(&container).await;
}

#[tokio::test]
async fn pause_and_resume_repeated_late_change_nothing() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = counted.run().await;
    let (pause, resume) = (context(), context());
    let paused = service.pause(on(&container, &pause)).await.unwrap();
    assert!(paused.is_paused() && counted.is_frozen());
    let resumed = service.resume(on(&container, &resume)).await.unwrap();
    assert!(!resumed.is_paused() && !counted.is_frozen());
    // The answer is that of then, the state is that of now.
    assert_eq!(service.pause(on(&container, &pause)).await.unwrap(), paused);
    assert!(!counted.is_frozen());
    service.pause(on(&container, &context())).await.unwrap();
    assert_eq!(
        service.resume(on(&container, &resume)).await.unwrap(),
        resumed
    );
    assert!(counted.is_frozen());
    assert_conflict(service.resume(on(&container, &pause)).await);
    assert_conflict(service.pause(on(&container, &resume)).await);
    assert!(counted.is_frozen());
    // One that had nothing to do has nothing to do for ever.
    let idle = context();
    service.pause(on(&container, &idle)).await.unwrap();
    service.resume(on(&container, &context())).await.unwrap();
    service.pause(on(&container, &idle)).await.unwrap();
    assert!(!counted.is_frozen());
    let state = StateRequest {
        target: container.clone(),
    };
    assert!(!service.state(state).await.unwrap().is_paused());
    counted.end(&container).await;
}

#[tokio::test]
async fn update_sets_limits_once() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let container = counted.run().await;
    let update = |context: &OperationContext, limit: i64| UpdateRequest {
        context: context.clone(),
        target: container.clone(),
        resources: serde_json::from_value::<LinuxResources>(json!({ "pids": { "limit": limit } }))
            .unwrap(),
    };
    let id = context();
    let limit = counted.cgroup_file("pids", "pids.max");
    let read = || std::fs::read_to_string(&limit).unwrap().trim().to_owned();
    let answer = service.update(update(&id, 64)).await.unwrap();
    assert_eq!(read(), "64");
    // Whoever has the effect a second time overwrites this.
    std::fs::write(&limit, "55").unwrap();
    assert_eq!(service.update(update(&id, 64)).await.unwrap(), answer);
    assert_conflict(service.update(update(&id, 65)).await);
    assert_eq!(read(), "55");
    counted.end(&container).await;
}

#[tokio::test]
async fn delete_removes_one_container_and_not_its_successor() {
    let counted = Counted::new().await;
    let service = &counted.world.service;
    let create = counted.world.create_request(&counted.spec).await;
    let first = target(&service.create(create.clone()).await.unwrap());
    let delete = DeleteRequest {
        context: context(),
        target: first.clone(),
        mode: DeleteMode::Force,
    };
    service.delete(delete.clone()).await.unwrap();
    service.delete(delete.clone()).await.unwrap();
    let mut again = create;
    again.context = context();
    let second = target(&service.create(again).await.unwrap());
    assert_eq!(second.id, first.id);
    service.delete(delete.clone()).await.unwrap();
    let other = DeleteRequest {
        mode: DeleteMode::StoppedOnly,
        ..delete
    };
    assert_conflict(service.delete(other).await);
    let state = StateRequest {
        target: second.clone(),
    };
    service.state(state).await.unwrap();
    let events = service
        .events(EventsRequest {
            container: None,
            after_sequence: 0,
            limit: 100,
            wait_timeout_ms: None,
        })
        .await
        .unwrap()
        .events;
    let deletes = events
        .iter()
        .filter(|event| event.kind == RuntimeEventKind::ContainerDeleted)
        .count();
    assert_eq!(deletes, 1);
    counted.end(&second).await;
}

/// A command whose caller never deletes it, as the contract's sessions do.
async fn session(world: &World, container: &ContainerTarget, id: &str) -> ProcessTarget {
    let process = world
        .exec(container, id, &["sh", "-c", "echo ran >> /out/ran"])
        .await;
    assert_eq!(world.output(&process).await, "");
    world.wait_process(&process).await.unwrap();
    process
}

#[tokio::test]
async fn a_session_shrinks_to_its_id_and_is_never_run_again() {
    let kept_for = Duration::from_millis(200);
    let world = World::configured(|config| config.session_kept_for = kept_for).await;
    let counted = Counted::on(world);
    let service = &counted.world.service;
    let container = counted.run().await;
    let command = ["sh", "-c", "echo first >> /out/first"];
    let request = counted.world.exec_request(&container, "first", &command);
    let first = service.exec(request.clone()).await.unwrap().target;
    counted.world.wait_process(&first).await.unwrap();
    // Within its time it is answered.
    service.exec(request.clone()).await.unwrap();
    // Once its time is over, the next exec lets go of it.
    let over = Instant::now() + kept_for;
    let mut number = 0;
    while Instant::now() <= over {
        number += 1;
        session(&counted.world, &container, &format!("later-{number}")).await;
    }
    session(&counted.world, &container, "last").await;
    let late = service.exec(request.clone()).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::FailedPrecondition);
    assert!(late.message.contains("not run again"), "{late}");
    // Its process id too: it was a key.
    let mut other = request.clone();
    other.context = context();
    let late = service.exec(other).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::FailedPrecondition);
    assert_eq!(counted.lines("first"), 1);
    counted.end(&container).await;
}

/// All 100,000 with `A3SBOX_TEST_SCALE=1`; a real exec takes tens of milliseconds, so a common run makes fewer.
fn probes() -> usize {
    let share = std::env::var("A3SBOX_TEST_SCALE")
        .ok()
        .and_then(|share| share.parse::<usize>().ok())
        .unwrap_or(10);
    match share {
        0 | 1 => 100_000,
        share => 100_000 / (share * 100),
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn probes_for_ever_leave_journal_and_memory_flat() {
    let counted = Counted::new().await;
    let container = counted.run().await;
    let journal = counted
        .world
        .root()
        .join(container.id.as_str())
        .join("journal.log");
    let probes = probes();
    let (mut largest, mut settled, mut files) = (0, 0, 0);
    for probe in 0..probes {
        session(&counted.world, &container, &format!("probe-{probe}")).await;
        largest = largest.max(std::fs::metadata(&journal).unwrap().len());
        if probe == probes / 2 {
            settled = resident_kib();
            files = open_files();
        }
    }
    assert_eq!(counted.lines("ran"), probes);
    // Each session that is kept has descriptors.
    let opened = open_files().saturating_sub(files);
    assert!(opened < 32, "{opened} more descriptors in the second half");
    assert!(largest < 256 * 1024, "journal of {largest} bytes");
    let grown = resident_kib().saturating_sub(settled);
    assert!(grown < 8 * 1024, "{grown} KiB more in the second half");
    println!(
        "{probes} probes: journal at most {largest} bytes, {grown} KiB more memory in the second half"
    );
    counted.end(&container).await;
}
