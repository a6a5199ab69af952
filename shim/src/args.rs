//! The command line that containerd gives a shim, in the style of Go's `flag` package:
//! `-name value`, `-name=value` or `--name value`, flags first, one action last.

use std::ffi::OsString;
use std::path::PathBuf;

/// Text printed for `-help` and after a command line that was refused.
pub(crate) const USAGE: &str = "\
usage: containerd-shim-a3sbox-v2 [flags] start|delete
  -namespace NAME        namespace that owns the shim
  -id ID                 id of the task
  -address PATH          address of containerd's own socket
  -publish-binary PATH   accepted and not used: events go to $TTRPC_ADDRESS
  -bundle PATH           bundle folder, if it is not the working folder
  -debug                 log more
  -info                  read runtime options, print what this runtime is, and exit
  -v, -version           print the version and exit
containerd runs this program; a person only needs -v and -info.
";

/// What the process was asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Start,
    Delete,
    /// The long-running server; only `start` runs it.
    Serve,
    Info,
    Version,
    Help,
}

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) action: Action,
    pub(crate) namespace: String,
    pub(crate) id: String,
    pub(crate) address: String,
    pub(crate) bundle: Option<PathBuf>,
    pub(crate) debug: bool,
    /// Path of the socket that the server inherits (`serve` only).
    pub(crate) socket: Option<PathBuf>,
    /// `oom_score_adj` that the server gives itself (`serve` only).
    pub(crate) oom_score_adj: Option<i32>,
    /// Cgroup that the server joins (`serve` only).
    pub(crate) shim_cgroup: Option<String>,
}

/// Why a command line was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("flag provided but not defined: {0}")]
    UnknownFlag(String),
    #[error("flag needs an argument: {0}")]
    MissingValue(String),
    #[error("invalid value {value:?} for flag {flag}")]
    InvalidValue { flag: String, value: String },
    #[error("argument is not UTF-8: {0:?}")]
    NotUtf8(OsString),
    #[error("no action: expected start or delete")]
    NoAction,
    #[error("unknown action {0:?}: expected start or delete")]
    UnknownAction(String),
    #[error("shim namespace cannot be empty")]
    EmptyNamespace,
    #[error("task id cannot be empty")]
    EmptyId,
    #[error("{what} {value:?} is not a single path component")]
    NotAComponent { what: &'static str, value: String },
}

impl Args {
    /// Parses the arguments after the program's name.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ArgsError> {
        let mut args = Self {
            action: Action::Version,
            namespace: String::new(),
            id: String::new(),
            address: String::new(),
            bundle: None,
            debug: false,
            socket: None,
            oom_score_adj: None,
            shim_cgroup: None,
        };
        let mut shortcut = None;
        let mut arguments = arguments.into_iter();
        let mut action = None;
        while let Some(argument) = arguments.next() {
            let argument = text(argument)?;
            let Some(flag) = argument.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
                // As with Go's flag package, flags end at the first plain word.
                action = Some(argument);
                break;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let (name, inline) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let shown = format!("-{name}");
            let mut value = |inline: Option<String>| match inline {
                Some(value) => Ok(value),
                None => match arguments.next() {
                    Some(value) => text(value),
                    None => Err(ArgsError::MissingValue(shown.clone())),
                },
            };
            match name {
                "debug" => args.debug = switch(&shown, inline)?,
                "v" | "version" => {
                    if switch(&shown, inline)? {
                        shortcut = Some(Action::Version);
                    }
                }
                "info" => {
                    if switch(&shown, inline)? {
                        shortcut = Some(Action::Info);
                    }
                }
                "h" | "help" => shortcut = Some(Action::Help),
                "namespace" => args.namespace = value(inline)?,
                "id" => args.id = value(inline)?,
                "address" => args.address = value(inline)?,
                "publish-binary" => drop(value(inline)?),
                "bundle" => args.bundle = Some(value(inline)?.into()),
                "socket" => args.socket = Some(value(inline)?.into()),
                "oom-score-adj" => {
                    let text = value(inline)?;
                    let score = text.parse().map_err(|_| ArgsError::InvalidValue {
                        flag: shown.clone(),
                        value: text,
                    })?;
                    args.oom_score_adj = Some(score);
                }
                "shim-cgroup" => args.shim_cgroup = Some(value(inline)?),
                _ => return Err(ArgsError::UnknownFlag(shown)),
            }
        }
        if let Some(action) = shortcut {
            args.action = action;
            return Ok(args);
        }
        args.action = match action.as_deref() {
            Some("start") => Action::Start,
            Some("delete") => Action::Delete,
            Some("serve") => Action::Serve,
            Some(other) => return Err(ArgsError::UnknownAction(other.to_owned())),
            None => return Err(ArgsError::NoAction),
        };
        args.check()?;
        Ok(args)
    }

    /// Both names become path components of bundle, record and socket.
    fn check(&self) -> Result<(), ArgsError> {
        if self.namespace.is_empty() {
            return Err(ArgsError::EmptyNamespace);
        }
        if self.id.is_empty() {
            return Err(ArgsError::EmptyId);
        }
        for (what, value) in [("namespace", &self.namespace), ("task id", &self.id)] {
            if value.contains(['/', '\0']) || value == "." || value == ".." {
                return Err(ArgsError::NotAComponent {
                    what,
                    value: value.clone(),
                });
            }
        }
        Ok(())
    }
}

fn text(argument: OsString) -> Result<String, ArgsError> {
    argument.into_string().map_err(ArgsError::NotUtf8)
}

fn switch(flag: &str, inline: Option<String>) -> Result<bool, ArgsError> {
    match inline.as_deref() {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => Err(ArgsError::InvalidValue {
            flag: flag.to_owned(),
            value: other.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, ArgsError> {
        Args::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn start_as_containerd_1_6_gives_it() {
        let args = parse(&[
            "-namespace",
            "k8s.io",
            "-address",
            "/run/containerd/containerd.sock",
            "-publish-binary",
            "/usr/bin/containerd",
            "-id",
            "c1",
            "-debug",
            "start",
        ])
        .unwrap();
        assert_eq!(args.action, Action::Start);
        assert_eq!(
            (args.namespace.as_str(), args.id.as_str()),
            ("k8s.io", "c1")
        );
        assert_eq!(args.address, "/run/containerd/containerd.sock");
        assert!(args.debug);
    }

    #[test]
    fn delete_takes_the_bundle_and_both_spellings_of_a_flag() {
        let args = parse(&[
            "--namespace=n",
            "-id=-odd",
            "-bundle",
            "/b",
            "-debug=false",
            "delete",
        ])
        .unwrap();
        assert_eq!(args.action, Action::Delete);
        assert_eq!(args.bundle, Some(PathBuf::from("/b")));
        assert_eq!(args.id, "-odd");
        assert!(!args.debug);
    }

    #[test]
    fn version_and_info_need_nothing_else() {
        assert_eq!(parse(&["-v"]).unwrap().action, Action::Version);
        assert_eq!(parse(&["-info"]).unwrap().action, Action::Info);
        assert_eq!(parse(&["-help"]).unwrap().action, Action::Help);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        assert_eq!(
            parse(&["-nosuch", "start"]),
            Err(ArgsError::UnknownFlag("-nosuch".into()))
        );
        assert_eq!(parse(&["-id"]), Err(ArgsError::MissingValue("-id".into())));
        assert_eq!(
            parse(&["-namespace", "n", "-id", "i", "run"]),
            Err(ArgsError::UnknownAction("run".into()))
        );
        assert_eq!(parse(&[]), Err(ArgsError::NoAction));
        assert_eq!(
            parse(&["-id", "i", "start"]),
            Err(ArgsError::EmptyNamespace)
        );
        assert_eq!(
            parse(&["-namespace", "n", "start"]),
            Err(ArgsError::EmptyId)
        );
        assert!(matches!(
            parse(&["-namespace", "n", "-id", "../x", "start"]),
            Err(ArgsError::NotAComponent { .. })
        ));
    }
}
