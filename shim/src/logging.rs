//! Lines of log in the form that containerd's own have, written to the fifo that containerd reads.
//!
//! A small subscriber of our own: one line per event, with the fields of the spans around it. Nothing is
//! kept per line, a full or unread fifo loses lines and never blocks a task.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use chrono::{SecondsFormat, Utc};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Longest line that is written; a longer one is cut.
const LINE_MAX_BYTES: usize = 4000;

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Span {
    fields: String,
    parent: Option<u64>,
    references: usize,
}

struct Log {
    out: File,
    level: Level,
    next: AtomicU64,
    spans: Mutex<HashMap<u64, Span>>,
}

/// Installs the log for this process. `debug` shows more than state changes. A second call has no effect.
pub(crate) fn install(out: File, debug: bool) {
    let log = Log {
        out,
        level: if debug { Level::DEBUG } else { Level::INFO },
        next: AtomicU64::new(1),
        spans: Mutex::new(HashMap::new()),
    };
    // It is only refused when one is installed already, which is then the log.
    let _ = tracing::subscriber::set_global_default(log);
}

impl Log {
    fn spans(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Span>> {
        // The map is valid after any panic: each change of it is a single call.
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn span_fields(&self, from: Option<u64>) -> String {
        let spans = self.spans();
        let mut fields = String::new();
        let mut at = from;
        while let Some(span) = at.and_then(|id| spans.get(&id)) {
            fields.push_str(&span.fields);
            at = span.parent;
        }
        fields
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = if attributes.is_contextual() {
            current()
        } else {
            attributes.parent().map(Id::into_u64)
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut spans = self.spans();
        // A child keeps its parent's fields for as long as it lives.
        if let Some(parent) = parent.and_then(|parent| spans.get_mut(&parent)) {
            parent.references += 1;
        }
        spans.insert(
            id,
            Span {
                fields: fields.rest,
                parent,
                references: 1,
            },
        );
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = self.spans().get_mut(&id.into_u64()) {
            span.fields.push_str(&fields.rest);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = format!(
            "time=\"{}\" level={} msg={}",
            Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true),
            level_word(*event.metadata().level()),
            quoted(&fields.message),
        );
        line.push_str(&fields.rest);
        let around = if event.is_contextual() {
            current()
        } else {
            event.parent().map(Id::into_u64)
        };
        line.push_str(&self.span_fields(around));
        line.push_str(" runtime=io.containerd.a3sbox.v2");
        if line.len() > LINE_MAX_BYTES {
            let mut end = LINE_MAX_BYTES;
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            line.truncate(end);
        }
        line.push('\n');
        // Nobody can be told that the log is full or has gone.
        let _ = (&self.out).write_all(line.as_bytes());
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(at) = entered.iter().rposition(|entry| *entry == id.into_u64()) {
                entered.remove(at);
            }
        });
    }

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(span) = self.spans().get_mut(&id.into_u64()) {
            span.references += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans();
        let mut closing = Some(id.into_u64());
        let mut closed = false;
        while let Some(id) = closing.take() {
            let Some(span) = spans.get_mut(&id) else {
                break;
            };
            span.references -= 1;
            if span.references == 0 {
                closing = span.parent;
                spans.remove(&id);
                closed = true;
            }
        }
        closed
    }
}

fn current() -> Option<u64> {
    ENTERED.with_borrow(|entered| entered.last().copied())
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        _ => "trace",
    }
}

/// A value in the quoting of logrus: bare where it can be.
fn quoted(value: &str) -> String {
    let bare = !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._/@^+:".contains(&byte));
    if bare {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Fields {
    fn put(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            // Writing into a string cannot fail.
            let _ = write!(self.rest, " {}={}", field.name(), quoted(value));
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, &chain(value));
    }
}

/// An error with all its sources on one line, as Go prints wrapped errors.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
