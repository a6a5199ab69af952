//! One span per operation, with its fields, and nothing of what it carries.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use a3sbox_core::{ExecutionGeneration, ExecutionId, ExecutionManager};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{World, soon};
use crate::task::TaskManager;

type Fields = BTreeMap<String, String>;

/// Keeps the fields of every span and event.
#[derive(Debug, Clone, Default)]
struct Recorder {
    spans: Arc<Mutex<Vec<Fields>>>,
    texts: Arc<Mutex<String>>,
}

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}").trim_matches('"').to_owned();
        self.0.insert(field.name().to_owned(), text);
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        attributes.record(&mut Collect(&mut fields));
        let mut spans = self.spans.lock().unwrap();
        spans.push(fields);
        Id::from_u64(u64::try_from(spans.len()).unwrap())
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Collect(&mut self.spans.lock().unwrap()[index]));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Collect(&mut fields));
        self.texts.lock().unwrap().push_str(&format!("{fields:?}"));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Recorder {
    /// The owner's spans of a verb, or those of the caller in front of it.
    fn of(&self, verb: &str, is_callers: bool) -> Vec<Fields> {
        let spans = self.spans.lock().unwrap();
        let is_of = |fields: &&Fields| {
            fields.get("verb").is_some_and(|name| name == verb)
                && fields.contains_key("execution_id") == is_callers
        };
        spans.iter().filter(is_of).cloned().collect()
    }
}

#[tokio::test]
async fn every_operation_has_a_span_and_no_secret_is_in_one() {
    let recorder = Recorder::default();
    // With one subscriber alone tracing asks the thread that meets a callsite first, which may be another
    // test's without any, and remembers its "never".
    let _second = tracing::Dispatch::new(Recorder::default());
    let guard = tracing::subscriber::set_default(recorder.clone());
    let world = World::new();
    let key = world.running("c1").await;
    world.exec(&key, "e1").await;
    let id = ExecutionId::new(world.stored(&key).unwrap().id).unwrap();
    let paused = ExecutionManager::pause(&world.manager, &id, ExecutionGeneration::INITIAL, true);
    soon(paused).await.unwrap();
    soon(world.manager.signal(&key, None, 9, true))
        .await
        .unwrap();
    soon(world.manager.wait(&key, None)).await.unwrap();
    soon(world.manager.delete(&key, None)).await.unwrap();
    drop(guard);

    for verb in ["create", "start", "exec", "pause", "signal", "delete"] {
        let spans = recorder.of(verb, false);
        assert!(
            !spans.is_empty(),
            "{verb} has no span: {:?}",
            recorder.spans.lock().unwrap()
        );
        for fields in spans {
            assert_eq!(fields["namespace"], "ns", "{verb}: {fields:?}");
            assert_eq!(fields["container_id"], "c1", "{verb}: {fields:?}");
            assert!(fields.contains_key("generation"), "{verb}: {fields:?}");
            assert!(!fields["operation_id"].is_empty(), "{verb}: {fields:?}");
        }
    }
    assert_eq!(recorder.of("exec", false)[0]["exec_id"], "e1");
    let calls = recorder.of("pause", true);
    assert_eq!(calls[0]["execution_id"], id.to_string());
    assert_eq!(calls[0]["generation"], "1");
    let all = format!(
        "{:?}{}",
        recorder.spans.lock().unwrap(),
        recorder.texts.lock().unwrap()
    );
    assert!(!all.contains("hunter2"), "a secret was logged");
}
