//! Streamed processes, and the inventory of what runs in an execution.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::{ExecutionManagerError, ExecutionManagerResult};
use crate::exec::ExecEvent;
use crate::generation::ExecutionGeneration;
use crate::ids::ExecutionId;

/// A streamed process, owned by its caller.
pub type ExecutionProcess = Box<dyn ExecutionProcessStream>;

/// What comes out of a process.
#[async_trait]
pub trait ExecutionProcessStream: Send {
    /// The way in, usable beside a pending `next_event`.
    fn input(&self) -> Arc<dyn ExecutionProcessInput>;

    /// The next event; `None` after the exit was delivered.
    async fn next_event(&mut self) -> ExecutionManagerResult<Option<ExecEvent>>;
}

/// What goes into a process.
#[async_trait]
pub trait ExecutionProcessInput: Send + Sync {
    async fn write_stdin(&self, data: &[u8]) -> ExecutionManagerResult<()>;

    async fn close_stdin(&self) -> ExecutionManagerResult<()>;

    /// Ends the process.
    async fn cancel(&self) -> ExecutionManagerResult<()>;

    /// An implementation without signals can still kill, by cancelling; anything softer is refused.
    async fn send_signal(&self, signal: ExecutionProcessSignal) -> ExecutionManagerResult<()> {
        match signal {
            ExecutionProcessSignal::Kill => self.cancel().await,
            ExecutionProcessSignal::Terminate => Err(ExecutionManagerError::InvalidRequest(
                "this process takes no signal but kill".to_owned(),
            )),
        }
    }

    /// Refused by a process without a terminal.
    async fn resize_pty(&self, cols: u16, rows: u16) -> ExecutionManagerResult<()> {
        let _ = (cols, rows);
        Err(ExecutionManagerError::InvalidRequest(
            "this process has no terminal".to_owned(),
        ))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionProcessSignal {
    Terminate,
    Kill,
}

impl ExecutionProcessSignal {
    pub const fn linux_number(self) -> i32 {
        match self {
            Self::Terminate => 15,
            Self::Kill => 9,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionProcessInfo {
    pub process_id: String,
    #[serde(default)]
    pub pid: Option<u32>,
    pub terminal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionProcessInventory {
    pub execution_id: ExecutionId,
    pub generation: ExecutionGeneration,
    pub processes: Vec<ExecutionProcessInfo>,
}

impl ExecutionProcessInventory {
    /// # Errors
    /// `Internal`, as it is an answer that contradicts itself: a blank or repeated id, or pid 0.
    pub fn validate(&self) -> ExecutionManagerResult<()> {
        let mut seen = BTreeSet::new();
        for process in &self.processes {
            let id = process.process_id.as_str();
            let fault = if id.trim().is_empty() {
                "a process without an id".to_owned()
            } else if !seen.insert(id) {
                format!("process {id} twice")
            } else if process.pid == Some(0) {
                format!("process {id} with pid 0")
            } else {
                continue;
            };
            return Err(ExecutionManagerError::Internal(format!(
                "process inventory of execution {} has {fault}",
                self.execution_id
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_linux_numbers() {
        assert_eq!(ExecutionProcessSignal::Terminate.linux_number(), 15);
        assert_eq!(ExecutionProcessSignal::Kill.linux_number(), 9);
    }

    #[test]
    fn an_inventory_has_distinct_named_live_processes() {
        let process = |id: &str, pid| ExecutionProcessInfo {
            process_id: id.into(),
            pid,
            terminal: false,
        };
        let check = |processes| {
            ExecutionProcessInventory {
                execution_id: ExecutionId::new("e").unwrap(),
                generation: ExecutionGeneration::INITIAL,
                processes,
            }
            .validate()
        };
        check(vec![]).unwrap();
        check(vec![process("init", Some(7)), process("x", None)]).unwrap();
        for bad in [
            vec![process(" ", Some(7))],
            vec![process("x", Some(7)), process("x", Some(8))],
            vec![process("x", Some(0))],
        ] {
            assert!(matches!(
                check(bad),
                Err(ExecutionManagerError::Internal(_))
            ));
        }
    }
}
