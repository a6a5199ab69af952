//! The files by which a sandbox knows names: its own, other hosts', and who resolves the rest.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;

use a3sbox_execution::BoxRecord;

use super::ids::FIRST_HOST_ID;
use super::mounts::ETC_FILES;
use super::spec::hostname;

const FILE_MODE: u32 = 0o644;

/// Writes the files and returns their folder.
pub(super) fn write(record: &BoxRecord) -> io::Result<PathBuf> {
    let folder = record.box_dir.join("etc");
    std::fs::create_dir_all(&folder)?;
    let contents = [
        hosts(record),
        format!("{}\n", hostname(record)),
        resolv_conf(record),
    ];
    for (name, content) in ETC_FILES.iter().zip(contents) {
        let path = folder.join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(FILE_MODE))?;
        chown(&path, Some(FIRST_HOST_ID), Some(FIRST_HOST_ID))?;
    }
    Ok(folder)
}

fn hosts(record: &BoxRecord) -> String {
    let mut text = format!(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t{}\n",
        hostname(record)
    );
    for entry in &record.add_host {
        // The address may have colons itself.
        if let Some((host, address)) = entry.split_once(':') {
            let _ = writeln!(text, "{address}\t{host}");
        }
    }
    text
}

fn resolv_conf(record: &BoxRecord) -> String {
    let servers = record
        .managed_execution
        .iter()
        .flat_map(|metadata| &metadata.request.config.dns);
    let mut text = String::new();
    for server in servers {
        if server.parse::<IpAddr>().is_ok() {
            let _ = writeln!(text, "nameserver {server}");
        }
    }
    text
}
