//! What the service holds of each container, and the rule by which verbs take turns on it.
//!
//! - Facts are made durable in the container's journal before they become true here ([`Container::commit`]).
//! - Verbs that change the container as a whole take its turn alone; execs share it, so that sixteen of
//!   them run side by side and a pause never freezes one half way. Signals and reads take no turn.
//! - A verb that began is finished by a task of its own, also when its caller is gone.
//! - The short lock around the journal is never held across an await.

mod container;
mod process;
mod processes;
pub(crate) mod record;
mod registry;
pub(crate) mod state;
mod streamed;

pub(crate) use container::{Container, Turn, operation, wrong_state};
pub(crate) use process::ProcessSlot;
pub(crate) use processes::Reserved;
pub(crate) use registry::Registry;
