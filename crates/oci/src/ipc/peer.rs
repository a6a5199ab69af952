//! Who is at the other end of a local socket, and who may be.

use crate::error::{Error, ErrorCode, Result};

/// The identity of a peer as the kernel tells it, taken when the connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    pub uid: u32,
    pub gid: u32,
    /// Not known on every platform, and reused after the process ended: for logs, not for decisions.
    pub pid: Option<i32>,
}

/// Which peers a listener serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerPolicy {
    /// The user that this process runs as, and root.
    SameUser,
    /// These users.
    Users(Vec<u32>),
}

impl PeerPolicy {
    /// `PermissionDenied` for a peer that is not served.
    pub fn check(&self, peer: PeerCredentials, own_uid: u32) -> Result<()> {
        let admitted = match self {
            Self::SameUser => peer.uid == own_uid || peer.uid == 0,
            Self::Users(users) => users.contains(&peer.uid),
        };
        if admitted {
            Ok(())
        } else {
            Err(Error::new(
                ErrorCode::PermissionDenied,
                format!("user {} may not call this runtime", peer.uid),
            ))
        }
    }
}

impl PeerCredentials {
    /// The peer of an accepted connection.
    pub fn of(stream: &tokio::net::UnixStream) -> Result<Self> {
        let credentials = stream.peer_cred().map_err(|error| {
            Error::internal(format!("cannot read the credentials of a peer: {error}"))
        })?;
        Ok(Self {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid: credentials.pid(),
        })
    }

    /// This process, as its own peer: the way to the effective user id without a system call binding.
    pub fn own() -> Result<Self> {
        let (stream, _other) = tokio::net::UnixStream::pair()
            .map_err(|error| Error::internal(format!("cannot make a socket pair: {error}")))?;
        Self::of(&stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> PeerCredentials {
        PeerCredentials {
            uid,
            gid: uid,
            pid: None,
        }
    }

    #[test]
    fn policy_table() {
        let table = [
            (PeerPolicy::SameUser, 1000, true),
            (PeerPolicy::SameUser, 0, true),
            (PeerPolicy::SameUser, 1001, false),
            (PeerPolicy::Users(vec![7, 8]), 8, true),
            (PeerPolicy::Users(vec![7, 8]), 0, false),
            (PeerPolicy::Users(vec![]), 1000, false),
        ];
        for (policy, uid, admitted) in table {
            let outcome = policy.check(user(uid), 1000);
            assert_eq!(outcome.is_ok(), admitted, "{policy:?} {uid}");
            if let Err(error) = outcome {
                assert_eq!(error.code, ErrorCode::PermissionDenied);
            }
        }
    }

    #[tokio::test]
    async fn own_credentials_name_this_process() {
        let own = PeerCredentials::own().unwrap();
        if let Some(pid) = own.pid {
            assert_eq!(u32::try_from(pid).unwrap(), std::process::id());
        }
    }
}
