//! The exec's machine as one total function.

use super::{Effect, ExecEvent, ExecState, Refusal, Verdict};

/// An exec's machine. Whether the container admits the verb is asked of [`super::next_init`] first.
pub(crate) const fn next_exec(state: ExecState, event: ExecEvent) -> Verdict<ExecState> {
    use Effect as E;
    use ExecEvent as Ev;
    use ExecState as S;
    use Verdict::{Defer, Done, Go, Ignore, Join, Refuse};
    match (state, event) {
        (S::Declared, Ev::Start) => Go(S::Starting, &[E::Start]),
        (S::Starting | S::Running, Ev::Start) => {
            Refuse(Refusal::Precondition("cannot start a running process"))
        }
        (S::Stopped | S::Deleting, Ev::Start) => {
            Refuse(Refusal::Precondition("cannot start a stopped process"))
        }
        (S::Starting, Ev::StartDone) => Go(S::Running, &[E::PublishStarted, E::Answer, E::Watch]),
        (S::Starting, Ev::StartFailed) => Go(S::Declared, &[E::Answer]),
        (_, Ev::StartDone | Ev::StartFailed) => Ignore,

        (S::Running, Ev::Kill) => Go(S::Running, &[E::Signal]),
        (S::Starting, Ev::Kill) => Defer,
        (S::Declared | S::Discarding, Ev::Kill) => Refuse(Refusal::ProcessNotCreated),
        (S::Stopped | S::Deleting, Ev::Kill) => Refuse(Refusal::AlreadyFinished),

        (S::Running, Ev::Resize) => Go(S::Running, &[E::Resize]),
        (S::Starting, Ev::Resize) => Defer,
        (S::Declared, Ev::Resize) => Go(S::Declared, &[E::Remember]),
        (S::Stopped | S::Deleting, Ev::Resize) => {
            Refuse(Refusal::Precondition("cannot resize a stopped container"))
        }
        (S::Running, Ev::CloseStdin) => Go(S::Running, &[E::CloseStdin]),
        (S::Starting, Ev::CloseStdin) => Defer,
        (S::Declared, Ev::CloseStdin) => Go(S::Declared, &[E::Remember]),
        (S::Stopped | S::Deleting, Ev::CloseStdin) => Done,

        (S::Declared, Ev::Delete) => Go(S::Discarding, &[E::Delete]),
        (S::Stopped, Ev::Delete) => Go(S::Deleting, &[E::Delete]),
        (S::Discarding | S::Deleting, Ev::Delete) => Join,
        (S::Starting, Ev::Delete) => Defer,
        (S::Running, Ev::Delete) => {
            Refuse(Refusal::Precondition("cannot delete a running process"))
        }
        (S::Discarding | S::Deleting, Ev::DeleteDone) => Go(S::Gone, &[E::Answer]),
        (S::Discarding, Ev::DeleteFailed) => Go(S::Declared, &[E::Answer]),
        (S::Deleting, Ev::DeleteFailed) => Go(S::Stopped, &[E::Answer]),
        (_, Ev::DeleteDone | Ev::DeleteFailed) => Ignore,

        (S::Running, Ev::Exited) => Go(S::Stopped, &[E::HoldExit, E::PublishExited]),
        (_, Ev::Exited) => Ignore,
        (S::Discarding | S::Gone, _) => Refuse(Refusal::ProcessGone),
    }
}
