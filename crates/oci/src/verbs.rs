//! The verbs of the contract with a request, as one list.

/// Every verb but `features`: method, request, answer, operation. The client, the transport's client and
/// its serving side are generated from this list, so none of them can miss a verb that another has.
macro_rules! for_each_verb {
    ($callback:ident) => {
        $callback! {
            create($crate::request::CreateRequest) -> $crate::response::ContainerRecord, Create;
            state($crate::request::StateRequest) -> $crate::response::ContainerRecord, State;
            start($crate::request::StartRequest) -> $crate::response::ContainerRecord, Start;
            kill($crate::request::KillRequest) -> $crate::response::ContainerRecord, Kill;
            delete($crate::request::DeleteRequest) -> (), Delete;
            exec($crate::request::ExecRequest) -> $crate::response::ProcessRecord, Exec;
            wait($crate::request::WaitRequest) -> $crate::response::ExitStatus, Wait;
            list($crate::request::ListRequest) -> Vec<$crate::response::ContainerRecord>, List;
            pause($crate::request::ContainerOperationRequest) -> $crate::response::ContainerRecord, Pause;
            resume($crate::request::ContainerOperationRequest) -> $crate::response::ContainerRecord, Resume;
            update($crate::request::UpdateRequest) -> $crate::response::ContainerRecord, Update;
            processes($crate::request::ProcessesRequest) -> Vec<$crate::response::ProcessRecord>, Processes;
            stats($crate::request::StatsRequest) -> $crate::response::ContainerStats, Stats;
            events($crate::request::EventsRequest) -> $crate::response::EventBatch, Events;
            read_output($crate::request::ReadOutputRequest) -> Vec<$crate::response::OutputChunk>, ReadOutput;
            write_stdin($crate::request::WriteStdinRequest) -> (), WriteStdin;
            close_stdin($crate::request::CloseStdinRequest) -> (), CloseStdin;
            resize($crate::request::ResizeRequest) -> (), Resize;
            signal_process($crate::request::SignalProcessRequest) -> (), SignalProcess;
            wait_process($crate::request::WaitProcessRequest) -> $crate::response::ExitStatus, WaitProcess;
            file($crate::request::FileRequest) -> $crate::response::FileResponse, File;
            filesystem($crate::request::FilesystemRequest) -> $crate::response::FilesystemResponse, Filesystem;
            checkpoint($crate::request::CheckpointRequest) -> $crate::response::ContainerRecord, Checkpoint;
            restore($crate::request::RestoreRequest) -> $crate::response::ContainerRecord, Restore;
            pids($crate::request::PidsRequest) -> Vec<$crate::response::RuntimePid>, Pids;
            delete_process($crate::request::DeleteProcessRequest) -> (), DeleteProcess;
        }
    };
}
pub(crate) use for_each_verb;
