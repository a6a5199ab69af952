//! The OCI configuration as far as this contract judges it; the engine judges the rest.

use oci_spec::runtime::Spec;

use super::process::check_process;
use crate::error::{Error, Result};

/// Lowest and highest version of the OCI runtime specification that is accepted.
pub const OCI_RUNTIME_SPEC_VERSION_MIN: &str = "1.0.0";
pub const OCI_RUNTIME_SPEC_VERSION_MAX: &str = "1.3.0";

const MIN: [u32; 3] = [1, 0, 0];
const MAX: [u32; 3] = [1, 3, 0];

/// Accepts `1.0.0` to `1.3.0`, also with a pre-release or build suffix such as `1.0.2-dev`, which
/// containerd and its clients write.
pub(crate) fn check_version(version: &str) -> Result<()> {
    let accepted = match parse_version(version) {
        // A pre-release of the lowest version comes before it.
        Some((MIN, pre_release)) => !pre_release,
        Some((numbers, _)) => (MIN..=MAX).contains(&numbers),
        None => false,
    };
    if accepted {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "ociVersion {version:?} is not between {OCI_RUNTIME_SPEC_VERSION_MIN} and {OCI_RUNTIME_SPEC_VERSION_MAX}"
        )))
    }
}

/// The numbers of a semantic version, and whether it is a pre-release.
fn parse_version(version: &str) -> Option<([u32; 3], bool)> {
    let without_build = version.split('+').next()?;
    let (core, pre_release) = match without_build.split_once('-') {
        Some((_, "")) => return None,
        Some((core, _)) => (core, true),
        None => (without_build, false),
    };
    let mut parts = core.split('.');
    let mut numbers = [0; 3];
    for number in &mut numbers {
        let part = parts.next()?;
        // `parse` alone would take a sign.
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some((numbers, pre_release))
}

/// What a create needs of a configuration.
pub(super) fn check_for_create(spec: &Spec) -> Result<()> {
    let process = spec
        .process()
        .as_ref()
        .ok_or_else(|| Error::invalid("the configuration has no process"))?;
    check_process(process)?;
    let root = spec
        .root()
        .as_ref()
        .ok_or_else(|| Error::invalid("the configuration has no root"))?;
    if root.path().as_os_str().is_empty() {
        return Err(Error::invalid("the configuration has an empty root path"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_version;

    #[test]
    fn versions_from_one_to_one_three() {
        for version in [
            "1.0.0",
            "1.0.0+build-1",
            "1.0.1-dev",
            "1.0.2-dev",
            "1.1.0",
            "1.1.0+dev",
            "1.2.0-rc.1",
            "1.2.99",
            "1.3.0-dev",
            "1.3.0",
        ] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in [
            "",
            "1",
            "1.0",
            "1.0.0.0",
            "0.9.9",
            "1.0.0-rc5",
            "1.3.1",
            "1.4.0",
            "2.0.0",
            "v1.0.0",
            "+1.0.0",
            "1.+1.0",
            "1.1.-1",
            "1.1.0-",
            "1.1.a",
        ] {
            assert!(check_version(version).is_err(), "{version}");
        }
    }
}
