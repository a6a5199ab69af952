//! All the containers that one manager owns, and how a new one comes in.
//!
//! The map is locked for a look-up only; a slow create holds a place in it and nothing else.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use a3sbox_core::{ExecutionId, OperationId};
use chrono::Utc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{Instrument as _, info, warn};

use super::backend::{TaskObservation, TaskProvisioned};
use super::ledger::{Ledger, Operation, Verb, store_error};
use super::limits::{Deadlines, EVENT_QUEUE, MAX_NAME_BYTES};
use super::machine::{InitEvent, InitState, Verdict, next_init};
use super::owner::{Handle, Owner, Seed};
use super::record::TaskRecord;
use super::recover;
use super::request::answer;
use super::types::{ProvisionRequest, TaskCreated, TaskDeleted, TaskEvent, TaskKey};
use super::watcher::Engine;
use super::{TaskError, TaskResult};
use crate::local_execution::build_managed_record;
use crate::process::boot_id;
use crate::store::{ManagedExecutionReservation, OwnerLock};
use crate::{BoxRecord, LocalExecutionBackend, ManagedExecutionState, ManagedExecutionStore};

/// The task face's state in a manager; shared by its clones.
pub(crate) struct TaskHub {
    store: ManagedExecutionStore,
    home: PathBuf,
    backend: Arc<dyn LocalExecutionBackend>,
    deadlines: Deadlines,
    /// `None` while the container is being created or recovered.
    entries: Mutex<HashMap<TaskKey, Option<Handle>>>,
    events: mpsc::Sender<TaskEvent>,
    reader: Mutex<Option<mpsc::Receiver<TaskEvent>>>,
}

impl std::fmt::Debug for TaskHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskHub")
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl TaskHub {
    pub(crate) fn new(
        store: ManagedExecutionStore,
        home: PathBuf,
        backend: Arc<dyn LocalExecutionBackend>,
    ) -> Self {
        Self::with_deadlines(store, home, backend, Deadlines::DEFAULT)
    }

    pub(crate) fn with_deadlines(
        store: ManagedExecutionStore,
        home: PathBuf,
        backend: Arc<dyn LocalExecutionBackend>,
        deadlines: Deadlines,
    ) -> Self {
        let (events, reader) = mpsc::channel(EVENT_QUEUE);
        Self {
            store,
            home,
            backend,
            deadlines,
            entries: Mutex::new(HashMap::new()),
            events,
            reader: Mutex::new(Some(reader)),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.entries().len()
    }

    pub(crate) fn take_events(&self) -> Option<mpsc::Receiver<TaskEvent>> {
        self.reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(crate) fn store(&self) -> &ManagedExecutionStore {
        &self.store
    }

    /// What the runtime says about a task's container.
    pub(crate) async fn observe(&self, record: &BoxRecord) -> TaskResult<TaskObservation> {
        let engine = self.engine();
        let task = engine.task()?;
        timeout(self.deadlines.inspect, task.inspect(record))
            .await
            .unwrap_or_else(|_| Err(TaskError::DeadlineExceeded("the observation".to_owned())))
    }

    pub(crate) fn engine(&self) -> Engine {
        Engine::new(Arc::clone(&self.backend), self.deadlines)
    }

    /// A container that exists. One that is being created does not, as containerd's clients know it.
    pub(crate) fn handle(&self, key: &TaskKey) -> TaskResult<Handle> {
        self.entries()
            .get(key)
            .cloned()
            .flatten()
            .ok_or_else(|| TaskError::NotFound("container not created: not found".to_owned()))
    }

    /// The owner of this very execution, when it lives in this manager. A container id that was used again
    /// names another execution.
    pub(crate) fn owner_of(&self, key: &TaskKey, execution_id: &str) -> Option<Handle> {
        self.entries()
            .get(key)
            .cloned()
            .flatten()
            .filter(|handle| handle.record.id == execution_id)
    }

    pub(crate) fn forget(&self, key: &TaskKey) {
        self.entries().remove(key);
    }

    /// Takes the container's place, so that a second call with the same key is refused.
    fn take_place(self: &Arc<Self>, key: &TaskKey) -> TaskResult<Place> {
        check_name("container id", &key.container_id)?;
        check_name("namespace", &key.namespace)?;
        let mut entries = self.entries();
        if entries.contains_key(key) {
            return Err(TaskError::AlreadyExists(format!(
                "task {}: already exists",
                key.container_id
            )));
        }
        entries.insert(key.clone(), None);
        Ok(Place {
            hub: Arc::clone(self),
            key: key.clone(),
            is_kept: false,
        })
    }

    /// Task Create. The work is a task of its own: it ends as it should when the caller hangs up.
    pub(crate) async fn provision(
        self: &Arc<Self>,
        request: ProvisionRequest,
    ) -> TaskResult<TaskCreated> {
        let place = self.take_place(&request.key)?;
        let (reply, answered) = oneshot::channel();
        let hub = Arc::clone(self);
        tokio::spawn(async move { answer(reply, hub.create(place, request).await) });
        answered
            .await
            .unwrap_or_else(|_| Err(TaskError::Internal("the create was lost".to_owned())))
    }

    /// Takes over a container whose owner died; see [`super::TaskManager::task_recover_and_delete`].
    pub(crate) async fn recover(self: &Arc<Self>, key: &TaskKey) -> TaskResult<TaskDeleted> {
        let place = self.take_place(key).map_err(|error| match error {
            TaskError::AlreadyExists(_) => TaskError::FailedPrecondition(format!(
                "container {} has a live owner: failed precondition",
                key.container_id
            )),
            other => other,
        })?;
        let (reply, answered) = oneshot::channel();
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            let result = match hub.store.find_container(&place.key).map_err(store_error) {
                Ok(Some(_)) => match hub.store.lock_owner(&place.key).map_err(store_error) {
                    Ok(lock) => recover::recover_and_delete(&hub, &place.key, lock).await,
                    Err(error) => Err(error),
                },
                Ok(None) => Err(hub.sweep_unrecorded(&place.key)),
                Err(error) => Err(error),
            };
            drop(place);
            answer(reply, result);
        });
        answered
            .await
            .unwrap_or_else(|_| Err(TaskError::Internal("the recovery was lost".to_owned())))
    }

    /// A folder without a record: its owner died before it had reserved, or after it had deleted. It goes,
    /// and the answer is that there is no such container.
    fn sweep_unrecorded(&self, key: &TaskKey) -> TaskError {
        let folder = self.store.container_folder(key);
        if folder.exists() {
            let swept = self.store.lock_owner(key).and_then(|_lock| {
                a3sbox_durable::folder::remove_all(&folder).map_err(crate::store::StoreError::from)
            });
            if let Err(error) = swept {
                return store_error(error);
            }
        }
        TaskError::NotFound(format!(
            "container {} is not recorded: not found",
            key.container_id
        ))
    }

    async fn create(
        self: &Arc<Self>,
        mut place: Place,
        request: ProvisionRequest,
    ) -> TaskResult<TaskCreated> {
        let key = request.key.clone();
        let lock = self.lock_free_of_leftovers(&key).await?;
        let created = self.create_locked(&key, request).await;
        let (ledger, task) = match created {
            Ok(created) => created,
            Err(error) => {
                // The record is gone or was never there; the folder of the lock goes with it.
                if let Err(cause) =
                    a3sbox_durable::folder::remove_all(&self.store.container_folder(&key))
                {
                    warn!(container_id = %key.container_id, %cause, "a folder stays");
                }
                drop(lock);
                return Err(error);
            }
        };
        let pid = task.init.pid.unwrap_or(0);
        info!(
            namespace = %key.namespace, container_id = %key.container_id, pid,
            generation = ledger.generation().get(), "container created"
        );
        let (owner, handle) = Owner::new(Seed {
            key: key.clone(),
            hub: Arc::downgrade(self),
            lock,
            ledger,
            engine: self.engine(),
            task,
            events: self.events.clone(),
        });
        self.entries().insert(key, Some(handle));
        place.is_kept = true;
        tokio::spawn(owner.run());
        Ok(TaskCreated { pid })
    }

    /// The owner's lock, after what a dead owner left under this name was taken away.
    async fn lock_free_of_leftovers(self: &Arc<Self>, key: &TaskKey) -> TaskResult<OwnerLock> {
        let lock = self.store.lock_owner(key).map_err(store_error)?;
        if self
            .store
            .find_container(key)
            .map_err(store_error)?
            .is_none()
        {
            return Ok(lock);
        }
        warn!(
            namespace = %key.namespace, container_id = %key.container_id,
            "a container of a dead owner is in the way; it is taken away first"
        );
        recover::recover_and_delete(self, key, lock).await?;
        self.store.lock_owner(key).map_err(store_error)
    }

    /// Reserves durably, then creates. After an error neither record nor container is left.
    async fn create_locked(
        &self,
        key: &TaskKey,
        request: ProvisionRequest,
    ) -> TaskResult<(Ledger, TaskRecord)> {
        let operation = Operation::mint(Verb::Create)?;
        let mut task = TaskRecord::new(&request);
        let execution_id = ExecutionId::new(uuid::Uuid::new_v4().to_string())?;
        let mut record = build_managed_record(
            &self.home,
            &execution_id,
            OperationId::new(operation.id.as_str())?,
            request.request,
            Utc::now(),
        )?;
        ManagedExecutionState::Creating
            .as_status()
            .clone_into(&mut record.status);
        record.exec_socket_path = PathBuf::new();
        let route = self.backend.route_for_create(&record)?;
        if let Some(managed) = record.managed_execution.as_mut() {
            managed.runtime_route = route;
            managed.task = Some(task.clone());
            managed.boot_id = boot_id().map(str::to_owned);
        }
        self.backend.preflight(&record).await?;
        let record = match self.store.reserve(record).map_err(store_error)? {
            ManagedExecutionReservation::Reserved(record) => record,
            ManagedExecutionReservation::Existing(_) => {
                return Err(TaskError::AlreadyExists(format!(
                    "task {}: already exists",
                    key.container_id
                )));
            }
        };
        let mut ledger = match Ledger::open(self.store.clone(), record) {
            Ok(ledger) => ledger,
            Err(error) => {
                let _ = self.store.remove(&execution_id);
                return Err(error);
            }
        };
        match self
            .create_container(&mut ledger, &mut task, &operation)
            .instrument(operation.span(key, a3sbox_core::ExecutionGeneration::INITIAL))
            .await
        {
            Ok(()) => Ok((ledger, task)),
            Err(error) => {
                if let Err(cause) = ledger.remove() {
                    warn!(container_id = %key.container_id, %cause, "a record stays");
                }
                Err(error)
            }
        }
    }

    async fn create_container(
        &self,
        ledger: &mut Ledger,
        task: &mut TaskRecord,
        operation: &Operation,
    ) -> TaskResult<()> {
        ledger.intend_as(operation)?;
        let engine = self.engine();
        let limit = self.deadlines.create;
        let record = ledger.record();
        let created = match timeout(limit, engine.task()?.create(&record, &operation.context)).await
        {
            Ok(created) => created,
            Err(_) => Err(TaskError::DeadlineExceeded(format!(
                "the create did not settle within {} s",
                limit.as_secs()
            ))),
        };
        let event = if created.is_ok() {
            InitEvent::CreateDone
        } else {
            InitEvent::CreateFailed
        };
        if let Verdict::Go(next, _) = next_init(task.init.state, event) {
            task.init.state = next;
        }
        match created {
            Ok(provisioned) => {
                adopt(task, provisioned);
                let recorded = ledger
                    .commit(task, None)
                    .and_then(|()| ledger.conclude(operation, None));
                if let Err(error) = recorded {
                    self.take_back(&engine, ledger, task).await;
                    return Err(error);
                }
                Ok(())
            }
            Err(error) => {
                if matches!(
                    error,
                    TaskError::DeadlineExceeded(_) | TaskError::Unavailable(_)
                ) {
                    // It may be there all the same.
                    self.take_back(&engine, ledger, task).await;
                }
                Err(error)
            }
        }
    }

    /// Deletes a container that cannot be recorded, or whose create gave no answer.
    async fn take_back(&self, engine: &Engine, ledger: &Ledger, task: &TaskRecord) {
        let mut record = ledger.record().as_ref().clone();
        if let Some(managed) = record.managed_execution.as_mut() {
            managed.task = Some(task.clone());
        }
        let deleted = async {
            let operation = Operation::mint(Verb::Delete)?;
            timeout(
                self.deadlines.delete,
                engine.task()?.delete(&record, &operation.context, true),
            )
            .await
            .unwrap_or_else(|_| Err(TaskError::DeadlineExceeded("the delete".to_owned())))
        };
        if let Err(cause) = deleted.await {
            warn!(execution_id = %record.id, %cause, "a container could not be taken back");
        }
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<TaskKey, Option<Handle>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn adopt(task: &mut TaskRecord, provisioned: TaskProvisioned) {
    task.init.pid = provisioned.process.pid;
    task.init.pid_start_time = provisioned.process.pid_start_time;
    task.binding = Some(provisioned.binding);
    task.kill_leftovers = provisioned.kill_leftovers;
    debug_assert_eq!(task.init.state, InitState::Created);
}

fn check_name(what: &str, name: &str) -> TaskResult<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        return Err(TaskError::InvalidArgument(format!(
            "{what} must have 1 to {MAX_NAME_BYTES} bytes and no NUL: invalid argument"
        )));
    }
    Ok(())
}

/// A place in the map that is given back unless the container came to be.
struct Place {
    hub: Arc<TaskHub>,
    key: TaskKey,
    is_kept: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            self.hub.forget(&self.key);
        }
    }
}
