//! The names of streams as containerd gives them: `fifo://`, `file://`, `binary://`, or a plain path.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::error::StdioError;

/// Longest URI that is looked at: a path and a few arguments of a logging binary.
const MAX_STDIO_URI_BYTES: usize = 16 * 1024;

/// One parsed stream name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamUri {
    /// A fifo, or whatever else exists at that path.
    Fifo(PathBuf),
    /// A file that output is appended to.
    File(PathBuf),
    /// A program that takes the output.
    Binary(BinaryUri),
}

/// A logging binary: the query's keys and values are its arguments, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BinaryUri {
    pub(super) path: PathBuf,
    pub(super) args: Vec<OsString>,
}

/// Parses a stream's name.
pub(super) fn parse(uri: &str) -> Result<StreamUri, StdioError> {
    let invalid = |reason| StdioError::InvalidUri {
        uri: uri.chars().take(256).collect(),
        reason,
    };
    if uri.len() > MAX_STDIO_URI_BYTES {
        return Err(invalid("too long"));
    }
    if uri.contains('\0') {
        return Err(invalid("it contains a NUL byte"));
    }
    if uri.starts_with('/') {
        // A plain path is taken as it is; `%` in it is an ordinary sign.
        return Ok(StreamUri::Fifo(PathBuf::from(uri)));
    }
    let Some((scheme, rest)) = uri.split_once(':') else {
        return Err(invalid("it is neither an absolute path nor a uri"));
    };
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(invalid("it names a host")),
        None => path,
    };
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(scheme.as_str(), "fifo" | "file" | "binary") {
        return Err(StdioError::UnknownScheme { scheme });
    }
    if !path.starts_with('/') {
        return Err(invalid("its path is not absolute"));
    }
    let bad_escape = || invalid("it has a broken percent escape");
    let path = PathBuf::from(unescape(path, false).ok_or_else(bad_escape)?);
    Ok(match scheme.as_str() {
        "fifo" => StreamUri::Fifo(path),
        "file" => StreamUri::File(path),
        _ => StreamUri::Binary(BinaryUri {
            path,
            args: arguments(query).ok_or_else(bad_escape)?,
        }),
    })
}

/// The keys of the query with their first values, in the order of the query.
///
/// containerd's own shim walks a Go map here, so no logging binary can rely on another order. A key
/// without a value is followed by an empty argument, as there.
fn arguments(query: &str) -> Option<Vec<OsString>> {
    let mut pairs: Vec<(OsString, OsString)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (unescape(key, true)?, unescape(value, true)?);
        if !pairs.iter().any(|(known, _)| *known == key) {
            pairs.push((key, value));
        }
    }
    Some(
        pairs
            .into_iter()
            .flat_map(|(key, value)| [key, value])
            .collect(),
    )
}

/// Undoes percent escapes; a NUL among them is refused.
fn unescape(text: &str, plus_is_space: bool) -> Option<OsString> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_space => b' ',
            other => other,
        };
        if byte == 0 {
            return None;
        }
        out.push(byte);
    }
    Some(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(uri: &str) -> (String, Vec<String>) {
        match parse(uri).unwrap() {
            StreamUri::Binary(found) => (
                found.path.to_str().unwrap().to_owned(),
                found
                    .args
                    .iter()
                    .map(|arg| arg.to_str().unwrap().to_owned())
                    .collect(),
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn plain_path_is_a_fifo_and_is_not_unescaped() {
        let uri = "/run/containerd/fifo/1%20/x-stdout";
        assert_eq!(parse(uri).unwrap(), StreamUri::Fifo(PathBuf::from(uri)));
    }

    #[test]
    fn scheme_path_is_unescaped() {
        assert_eq!(
            parse("fifo:///run/a%20b").unwrap(),
            StreamUri::Fifo(PathBuf::from("/run/a b"))
        );
        assert_eq!(
            parse("file:///var/log/x.log?ignored=1").unwrap(),
            StreamUri::File(PathBuf::from("/var/log/x.log"))
        );
    }

    #[test]
    fn query_of_a_logging_binary_is_its_arguments() {
        assert_eq!(
            binary(
                "binary:///usr/local/bin/nerdctl?_NERDCTL_INTERNAL_LOGGING=%2Fvar%2Flib%2Fnerdctl%2F1935db59"
            ),
            (
                "/usr/local/bin/nerdctl".to_owned(),
                vec![
                    "_NERDCTL_INTERNAL_LOGGING".to_owned(),
                    "/var/lib/nerdctl/1935db59".to_owned()
                ]
            )
        );
        assert_eq!(
            binary("binary:///bin/l?b=1+2&a=x%26y&b=3&flag").1,
            ["b", "1 2", "a", "x&y", "flag", ""]
        );
        assert_eq!(binary("binary:///bin/l").1, Vec::<String>::new());
    }

    #[test]
    fn odd_names_are_refused_by_reason() {
        for uri in [
            "",
            "relative/path",
            "fifo://host/x",
            "file:x",
            "fifo:///a%0",
            "file:///a%00b",
        ] {
            assert!(
                matches!(parse(uri), Err(StdioError::InvalidUri { .. })),
                "{uri:?} was accepted"
            );
        }
        assert!(matches!(
            parse("npipe:////./pipe/x"),
            Err(StdioError::UnknownScheme { scheme }) if scheme == "npipe"
        ));
        assert!(parse(&format!("/{}", "x".repeat(MAX_STDIO_URI_BYTES))).is_err());
    }
}
