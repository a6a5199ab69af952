//! containerd-shim-a3sbox-v2: the process that containerd runs for each pod.
mod args;
mod bootstrap;
mod grouping;
mod logging;
mod options;
mod policy;
mod sys;

fn main() {}
