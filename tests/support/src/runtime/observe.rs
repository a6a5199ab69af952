//! Processes, statistics and events of a container.

use std::collections::BTreeMap;

use a3sbox_oci::{
    ContainerStats, CpuStats, EventBatch, EventsRequest, IO_READ_BYTES_METRIC, MemoryStats,
    ProcessId, ProcessRecord, ProcessTarget, ProcessesRequest, Result, RuntimeEvent,
    RuntimeEventKind, StatsRequest,
};

use super::State;

const DRIFTED: &str = "a3s-box-drift";
const INIT_PID: u32 = 4242;
const MEMORY_LIMIT: u64 = 128 * 1024 * 1024;

impl State {
    pub(super) fn processes(&mut self, request: ProcessesRequest) -> Result<Vec<ProcessRecord>> {
        let target = request.target.clone();
        self.recorded.processes.push(request);
        self.container(&target)?;
        let init = ProcessRecord {
            target: ProcessTarget {
                container: self.answered(&target, DRIFTED)?,
                process_id: ProcessId::init(),
            },
            pid: Some(INIT_PID),
            terminal: false,
        };
        let execs = self.processes_of(&target).into_iter();
        let execs = execs
            .filter_map(|id| self.processes.get(id))
            .map(|process| process.record());
        Ok(std::iter::once(init).chain(execs).collect())
    }

    pub(super) fn stats(&mut self, request: StatsRequest) -> Result<ContainerStats> {
        let target = request.target.clone();
        self.recorded.stats.push(request);
        self.container(&target)?;
        Ok(ContainerStats {
            target: self.answered(&target, DRIFTED)?,
            timestamp_unix_ns: 1,
            cpu: CpuStats {
                usage_ns: 100,
                user_ns: 60,
                system_ns: 40,
                throttled_ns: 0,
            },
            memory: MemoryStats {
                usage_bytes: 1024,
                limit_bytes: Some(MEMORY_LIMIT),
                peak_bytes: Some(2048),
            },
            process_count: 1,
            metrics: BTreeMap::from([(IO_READ_BYTES_METRIC.to_owned(), 4096)]),
        })
    }

    pub(super) fn events(&mut self, request: EventsRequest) -> Result<EventBatch> {
        let target = request.container.clone();
        self.recorded.events.push(request);
        let target = target.ok_or_else(|| {
            a3sbox_oci::Error::new(a3sbox_oci::ErrorCode::InvalidArgument, "no container")
        })?;
        self.container(&target)?;
        let event = |sequence, process_id, kind| RuntimeEvent {
            sequence,
            timestamp_unix_ns: sequence,
            container: target.clone(),
            process_id,
            kind,
            attributes: BTreeMap::new(),
        };
        let mut events = vec![
            event(5, None, RuntimeEventKind::ContainerStarted),
            event(8, Some(ProcessId::init()), RuntimeEventKind::ProcessStarted),
        ];
        if self.switches.misorders_events {
            events[0].sequence = 8;
            events[1].sequence = 7;
        }
        Ok(EventBatch {
            events,
            next_sequence: 8,
        })
    }
}
