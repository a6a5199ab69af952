//! Runtime options as containerd sends them: an `Any` of one of two types.
//!
//! ctr and nerdctl send `containerd.runc.v1.Options`; the CRI plugin sends `runtimeoptions.v1.Options`,
//! which names a TOML file or carries the TOML itself. Here the bytes become a typed value or a refusal
//! that names what is wrong; what the TOML means is `policy`'s.

use std::path::PathBuf;

use protobuf::{CodedInputStream, Message};

use containerd_shim_protos::shim::oci::{
    CheckpointOptions as ProtoCheckpoint, Options as ProtoOptions,
};

/// Largest options value that is taken.
pub(crate) const OPTIONS_MAX_BYTES: usize = 1 << 20;

/// The switches of the OCI engine under the names of containerd's runc options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RuncOptions {
    pub(crate) no_pivot_root: bool,
    pub(crate) no_new_keyring: bool,
    pub(crate) shim_cgroup: Option<String>,
    pub(crate) io_uid: u32,
    pub(crate) io_gid: u32,
    pub(crate) binary_name: Option<String>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) criu_path: Option<PathBuf>,
    pub(crate) systemd_cgroup: bool,
    pub(crate) criu_image_path: Option<PathBuf>,
    pub(crate) criu_work_path: Option<PathBuf>,
}

/// Runtime options of one call, by where they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuntimeOptions {
    /// Nothing was sent: the base configuration alone holds.
    None,
    Runc(RuncOptions),
    /// A file whose TOML lies over the base configuration.
    File(PathBuf),
    /// TOML that lies over the base configuration.
    Body(String),
}

/// Why options were refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionsError {
    #[error("runtime options are larger than {OPTIONS_MAX_BYTES} bytes")]
    TooLarge,
    #[error("runtime options of type {0:?} are not known to this runtime")]
    UnknownType(String),
    #[error("malformed runtime options of type {type_name}")]
    Malformed {
        type_name: &'static str,
        source: protobuf::Error,
    },
    #[error("unknown runtime option: field {number} of {type_name}")]
    UnknownField {
        type_name: &'static str,
        number: u32,
    },
    #[error("runtime options: ConfigBody is not UTF-8")]
    BodyNotUtf8,
    #[error("runtime options: ConfigPath {0:?} is not absolute")]
    RelativePath(String),
}

const RUNC: &str = "containerd.runc.v1.Options";
const RUNTIME: &str = "runtimeoptions.v1.Options";
const CHECKPOINT: &str = "containerd.runc.v1.CheckpointOptions";

/// Reads the options of Task Create and of `start`, by the type's name.
pub(crate) fn parse(type_url: &str, value: &[u8]) -> Result<RuntimeOptions, OptionsError> {
    if value.len() > OPTIONS_MAX_BYTES {
        return Err(OptionsError::TooLarge);
    }
    match type_name(type_url) {
        // An Any without a type is what an empty options table becomes.
        "" if value.is_empty() => Ok(RuntimeOptions::None),
        RUNC => parse_runc(value).map(RuntimeOptions::Runc),
        // The CRI plugin of old containerds had a package name of its own.
        RUNTIME | "cri.runtimeoptions.v1.Options" => parse_runtime(value),
        other => Err(OptionsError::UnknownType(other.to_owned())),
    }
}

/// Reads the options of Task Checkpoint; none is the default of each.
pub(crate) fn parse_checkpoint(
    type_url: &str,
    value: &[u8],
) -> Result<ProtoCheckpoint, OptionsError> {
    match type_name(type_url) {
        "" => Ok(ProtoCheckpoint::new()),
        CHECKPOINT => {
            let options =
                ProtoCheckpoint::parse_from_bytes(value).map_err(malformed(CHECKPOINT))?;
            // 10 is `parent_path` of containerd 2.4: pre-dumped parents need their own support.
            refuse_unknown(&options, CHECKPOINT, &[])?;
            Ok(options)
        }
        other => Err(OptionsError::UnknownType(other.to_owned())),
    }
}

/// The message's name in a type URL, with or without a host before it.
fn type_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

fn malformed(type_name: &'static str) -> impl Fn(protobuf::Error) -> OptionsError {
    move |source| OptionsError::Malformed { type_name, source }
}

/// Fields that the message type does not know would be lost in silence: they are refused by number.
fn refuse_unknown(
    message: &impl Message,
    type_name: &'static str,
    known: &[u32],
) -> Result<(), OptionsError> {
    let unknown = message.special_fields().unknown_fields().iter();
    match unknown
        .map(|(number, _)| number)
        .find(|number| !known.contains(number))
    {
        Some(number) => Err(OptionsError::UnknownField { type_name, number }),
        None => Ok(()),
    }
}

fn parse_runc(value: &[u8]) -> Result<RuncOptions, OptionsError> {
    // containerd 2.0 took field 8 out; 1.x clients still send it.
    const CRIU_PATH_FIELD: u32 = 8;
    let options = ProtoOptions::parse_from_bytes(value).map_err(malformed(RUNC))?;
    refuse_unknown(&options, RUNC, &[CRIU_PATH_FIELD])?;
    let criu_path = match options.special_fields.unknown_fields().get(CRIU_PATH_FIELD) {
        Some(protobuf::UnknownValueRef::LengthDelimited(bytes)) => {
            path(&String::from_utf8_lossy(bytes))
        }
        _ => None,
    };
    Ok(RuncOptions {
        no_pivot_root: options.no_pivot_root,
        no_new_keyring: options.no_new_keyring,
        shim_cgroup: some(&options.shim_cgroup),
        io_uid: options.io_uid,
        io_gid: options.io_gid,
        binary_name: some(&options.binary_name),
        root: path(&options.root),
        criu_path,
        systemd_cgroup: options.systemd_cgroup,
        criu_image_path: path(&options.criu_image_path),
        criu_work_path: path(&options.criu_work_path),
    })
}

fn parse_runtime(value: &[u8]) -> Result<RuntimeOptions, OptionsError> {
    let mut config_path = String::new();
    let mut config_body = Vec::new();
    let mut input = CodedInputStream::from_bytes(value);
    while let Some(tag) = input.read_raw_tag_or_eof().map_err(malformed(RUNTIME))? {
        match tag {
            // type_url = 1 names the kind of the content; there is one kind only.
            0x0a => drop(input.read_string().map_err(malformed(RUNTIME))?),
            0x12 => config_path = input.read_string().map_err(malformed(RUNTIME))?,
            0x1a => config_body = input.read_bytes().map_err(malformed(RUNTIME))?,
            other => {
                return Err(OptionsError::UnknownField {
                    type_name: RUNTIME,
                    number: other >> 3,
                });
            }
        }
    }
    if !config_path.is_empty() {
        if !config_path.starts_with('/') {
            return Err(OptionsError::RelativePath(config_path));
        }
        return Ok(RuntimeOptions::File(config_path.into()));
    }
    if config_body.is_empty() {
        return Ok(RuntimeOptions::None);
    }
    match String::from_utf8(config_body) {
        Ok(body) => Ok(RuntimeOptions::Body(body)),
        Err(_) => Err(OptionsError::BodyNotUtf8),
    }
}

fn some(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

fn path(value: &str) -> Option<PathBuf> {
    some(value).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, text: &str) -> Vec<u8> {
        let mut bytes = vec![(number << 3) | 2, u8::try_from(text.len()).unwrap()];
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn runc_options_of_1_x_and_2_x_are_taken() {
        let mut options = ProtoOptions::new();
        options.binary_name = "crun".into();
        options.systemd_cgroup = true;
        options.io_uid = 7;
        let mut bytes = options.write_to_bytes().unwrap();
        bytes.extend(field(8, "/usr/sbin/criu"));
        for url in [RUNC.to_owned(), format!("type.googleapis.com/{RUNC}")] {
            let RuntimeOptions::Runc(runc) = parse(&url, &bytes).unwrap() else {
                panic!("not runc's options")
            };
            assert_eq!(runc.binary_name.as_deref(), Some("crun"));
            assert_eq!(runc.criu_path, Some(PathBuf::from("/usr/sbin/criu")));
            assert!(runc.systemd_cgroup);
            assert_eq!(runc.io_uid, 7);
            assert_eq!(runc.root, None);
        }
    }

    #[test]
    fn an_unknown_field_and_an_unknown_type_are_named() {
        let error = parse(RUNC, &field(15, "x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown runtime option: field 15 of containerd.runc.v1.Options"
        );
        let error = parse("example.Options", b"").unwrap_err();
        assert!(error.to_string().contains("example.Options"));
        assert!(parse(RUNC, &[0xff]).is_err());
    }

    #[test]
    fn runtime_options_carry_a_path_or_a_body() {
        let mut bytes = field(1, "t");
        bytes.extend(field(2, "/etc/a.toml"));
        assert_eq!(
            parse(RUNTIME, &bytes).unwrap(),
            RuntimeOptions::File("/etc/a.toml".into())
        );
        assert_eq!(
            parse(RUNTIME, &field(3, "a = 1")).unwrap(),
            RuntimeOptions::Body("a = 1".into())
        );
        assert_eq!(parse(RUNTIME, b"").unwrap(), RuntimeOptions::None);
        assert!(parse(RUNTIME, &field(2, "a.toml")).is_err());
        assert!(parse(RUNTIME, &field(4, "x")).is_err());
    }

    #[test]
    fn checkpoint_options_are_optional_and_checked() {
        assert!(!parse_checkpoint("", b"").unwrap().exit);
        let mut options = ProtoCheckpoint::new();
        options.exit = true;
        let bytes = options.write_to_bytes().unwrap();
        assert!(parse_checkpoint(CHECKPOINT, &bytes).unwrap().exit);
        assert!(parse_checkpoint(CHECKPOINT, &field(10, "/p")).is_err());
    }
}
