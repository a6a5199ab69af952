//! One image, many spellings: names are compared in their full form.

/// The full form of a name: registry, repository and tag, as `docker.io/library/alpine:3.20`.
pub(super) fn canonical(name: &str) -> String {
    let name = name.trim();
    let (registry, rest) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
            (first.to_owned(), rest.to_owned())
        }
        Some(_) => ("docker.io".to_owned(), name.to_owned()),
        None => ("docker.io".to_owned(), format!("library/{name}")),
    };
    let last = rest.rsplit('/').next().unwrap_or(&rest);
    if last.contains([':', '@']) {
        format!("{registry}/{rest}")
    } else {
        format!("{registry}/{rest}:latest")
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn spellings_of_one_image_are_equal() {
        for (name, full) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("alpine:3.20", "docker.io/library/alpine:3.20"),
            ("me/tool", "docker.io/me/tool:latest"),
            (
                "docker.io/library/alpine:3.20",
                "docker.io/library/alpine:3.20",
            ),
            ("localhost/x:1", "localhost/x:1"),
            ("host:5000/a/b", "host:5000/a/b:latest"),
            ("a3sbox.test/busybox:1", "a3sbox.test/busybox:1"),
            ("a/b@sha256:00", "docker.io/a/b@sha256:00"),
        ] {
            assert_eq!(canonical(name), full);
        }
    }
}
