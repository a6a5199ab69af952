//! The contract's verbs at the owner's door: hand over, wait for the answer.

use a3sbox_core::{
    ExecutionGeneration, ExecutionManagerError, ExecutionManagerResult, KillExecutionOptions,
    KillOutcome, OperationId,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::owner::Handle;
use super::request::{FencedAnswer, FencedCall, FencedVerb, Request};

const SIGKILL: i32 = 9;

impl Handle {
    /// Asks the owner for a verb on the generation that the caller decided on. Dropping this future
    /// cancels nothing that began.
    pub(crate) async fn fenced(
        &self,
        generation: ExecutionGeneration,
        operation_id: OperationId,
        verb: FencedVerb,
    ) -> ExecutionManagerResult<FencedAnswer> {
        let (reply, answered) = oneshot::channel();
        let call = Box::new(FencedCall {
            generation,
            operation_id,
            verb,
            reply,
        });
        if self.requests.send(Request::Fenced(call)).await.is_err() {
            return Err(self.gone());
        }
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// A kill: the signal, and the end of the execution. What is left of the container is containerd's to
    /// delete. Without a timeout, and with a signal that the processes handle, it waits as long as they run.
    pub(crate) async fn kill(
        &self,
        generation: ExecutionGeneration,
        operation_id: OperationId,
        options: KillExecutionOptions,
    ) -> ExecutionManagerResult<KillOutcome> {
        let verb = FencedVerb::Kill(options);
        let answer = self.fenced(generation, operation_id, verb).await?;
        let mut view = self.init.clone();
        let ended = view.wait_for(|view| view.exit.is_some());
        // An owner that is gone saw the end before it went.
        if options.timeout_secs.is_some() || options.signal.is_none_or(|signal| signal == SIGKILL) {
            let limit = self.engine.deadlines.recovery_kill + self.engine.deadlines.exec_drain;
            if timeout(limit, ended).await.is_err() {
                return Err(ExecutionManagerError::Unavailable(format!(
                    "execution {} was killed, and its end was not seen within {} s",
                    self.record.id,
                    limit.as_secs()
                )));
            }
        } else {
            let _ = ended.await;
        }
        Ok(if answer.is_already {
            KillOutcome::AlreadyStopped
        } else {
            KillOutcome::Killed
        })
    }

    fn gone(&self) -> ExecutionManagerError {
        match a3sbox_core::ExecutionId::new(self.record.id.clone()) {
            Ok(id) => ExecutionManagerError::NotFound(id),
            Err(error) => error,
        }
    }
}
