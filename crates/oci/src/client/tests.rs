use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::error::{Error, ErrorCode};
use crate::{
    CreateAttachments, CreateRequest, EventsRequest, IsolationRequest, KillRequest, OciBundle,
    OperationContext, ProcessIo, StateRequest,
};

/// The six required verbs and `wait`; one of them may fail.
#[derive(Default)]
struct Small {
    called: Mutex<Vec<&'static str>>,
    fails: Option<&'static str>,
}

impl Small {
    fn act<T>(&self, verb: &'static str, answer: T) -> Result<T> {
        self.called.lock().unwrap().push(verb);
        if self.fails == Some(verb) {
            return Err(Error::new(ErrorCode::Internal, verb));
        }
        Ok(answer)
    }

    fn record(&self, verb: &'static str) -> Result<crate::ContainerRecord> {
        let record = json!({
            "state": {"ociVersion": "1.3.0", "id": "c", "status": "running", "bundle": "/b"},
            "generation": 41, "driver": "native-linux", "isolation": "shared-host-kernel",
            "config_digest": "sha256:1",
        });
        self.act(verb, serde_json::from_value(record).unwrap())
    }
}

#[async_trait]
impl OciRuntimeService for Small {
    async fn features(&self) -> Result<RuntimeInfo> {
        Err(Error::unsupported("features"))
    }
    async fn create(&self, _: CreateRequest) -> Result<crate::ContainerRecord> {
        self.record("create")
    }
    async fn state(&self, _: StateRequest) -> Result<crate::ContainerRecord> {
        self.record("state")
    }
    async fn start(&self, request: StartRequest) -> Result<crate::ContainerRecord> {
        assert_eq!(request.target.generation.map(|g| g.0), Some(41));
        self.record("start")
    }
    async fn kill(&self, _: KillRequest) -> Result<crate::ContainerRecord> {
        self.record("kill")
    }
    async fn delete(&self, request: DeleteRequest) -> Result<()> {
        assert_eq!(request.mode, DeleteMode::Force);
        self.act("delete", ())
    }
    async fn wait(&self, _: WaitRequest) -> Result<ExitStatus> {
        self.act("wait", ExitStatus::exited(3)?)
    }
}

fn run() -> RunRequest {
    let config = json!({"ociVersion": "1.3.0", "root": {"path": "rootfs"},
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["x"], "cwd": "/"}});
    let bundle = OciBundle::from_json("/b", config.to_string()).unwrap();
    let context = |name: &str| OperationContext::new(name.parse().unwrap());
    RunRequest {
        create: CreateRequest {
            context: context("create"),
            id: "c".parse().unwrap(),
            attachments: CreateAttachments::from_bundle(&bundle, ProcessIo::default()).unwrap(),
            bundle,
            isolation: IsolationRequest::SharedHostKernel,
        },
        start_context: context("start"),
        delete_context: context("delete"),
    }
}

#[tokio::test]
async fn run_deletes_whatever_it_created() {
    let table: [(Option<&str>, &[&str]); 5] = [
        (None, &["create", "start", "wait", "delete"]),
        (Some("create"), &["create"]),
        (Some("start"), &["create", "start", "delete"]),
        (Some("wait"), &["create", "start", "wait", "delete"]),
        (Some("delete"), &["create", "start", "wait", "delete"]),
    ];
    for (fails, called) in table {
        let service = Arc::new(Small {
            fails,
            ..Small::default()
        });
        let client = RuntimeClient::from_arc(Arc::<Small>::clone(&service));
        let outcome = client.run(run()).await;
        assert_eq!(*service.called.lock().unwrap(), called, "{fails:?}");
        match fails {
            None => assert_eq!(outcome.unwrap().exit_code, Some(3)),
            Some(verb) => assert_eq!(outcome.unwrap_err().message, verb),
        }
    }
}

#[tokio::test]
async fn a_malformed_request_does_not_reach_the_service() {
    let service = Arc::new(Small::default());
    let client = RuntimeClient::from_arc(Arc::<Small>::clone(&service));
    let mut request = run().create;
    request.attachments =
        request
            .attachments
            .with_process_io(ProcessIo::terminal(crate::TerminalSize {
                width: 80,
                height: 24,
            }));
    let error = client.create(request).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert_eq!(error.operation.as_deref(), Some("create"));
    assert!(service.called.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_verb_without_a_body_is_unsupported_by_name() {
    let client = RuntimeClient::new(Small::default());
    let error = client
        .events(EventsRequest {
            container: None,
            after_sequence: 0,
            limit: 1,
            wait_timeout_ms: None,
        })
        .await
        .unwrap_err();
    assert_eq!(error, Error::unsupported("events"));
}
