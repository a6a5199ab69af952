//! Every bound of the contract and of its transport, in one place.

use std::time::Duration;

/// Largest `config.json` that is read.
pub const MAX_CONFIG_BYTES: usize = 16 * MIB;
/// Most events that one call returns.
pub const MAX_EVENT_BATCH_ITEMS: u32 = 4_096;
/// Most output bytes that one read asks for.
pub const MAX_OUTPUT_READ_BYTES: u32 = 16 * 1024 * 1024;
/// Most bytes that one write puts into a process's stdin.
pub const MAX_STDIN_WRITE_BYTES: usize = 16 * MIB;
/// Largest file that one upload or download moves, decoded.
pub const MAX_FILE_TRANSFER_BYTES: usize = 32 * MIB;
/// Deepest directory listing.
pub const MAX_FILESYSTEM_DEPTH: u32 = 64;
/// Longest path of a file or filesystem request.
pub const MAX_FILESYSTEM_PATH_BYTES: usize = 4_096;
/// Longest user name of a file or filesystem request.
pub const MAX_FILESYSTEM_USER_BYTES: usize = 256;

/// Longest container, process, operation or trust domain id.
pub(crate) const MAX_ID_BYTES: usize = 128;
/// Longest URI of one standard stream.
pub(crate) const MAX_STDIO_URI_BYTES: usize = 4_096;
/// Longest name of a metric.
pub(crate) const MAX_METRIC_NAME_CHARS: usize = 256;
/// Longest name of an attachment extension.
pub(crate) const MAX_EXTENSION_NAME_BYTES: usize = 256;
/// Most attachment extensions of one create request.
pub(crate) const MAX_EXTENSIONS: usize = 64;
/// Largest inline value of one attachment extension, encoded.
pub(crate) const MAX_EXTENSION_VALUE_BYTES: usize = 256 * 1024;

/// Lowest and highest version of the local transport that this build speaks.
pub const SDK_PROTOCOL_VERSION_MIN: u16 = 3;
pub const SDK_PROTOCOL_VERSION_MAX: u16 = 4;
/// First version that carries `file` and `filesystem`.
pub(crate) const FILE_PROTOCOL_VERSION: u16 = 4;

/// Largest frame of the local transport: JSON part and binary tail together.
pub const MAX_FRAME_BYTES: usize = 64 * MIB;
/// Largest first frame of either side.
pub(crate) const MAX_HELLO_BYTES: usize = 4 * 1024;
/// Largest answer of a verb that neither lists nor transfers anything.
pub(crate) const MAX_SMALL_ANSWER_BYTES: usize = MIB;
/// Largest answer of `events`.
pub(crate) const MAX_EVENTS_ANSWER_BYTES: usize = 16 * MIB;
/// Calls other than waits that one connection carries at a time; more of them queue at the client.
pub const MAX_CALLS_IN_FLIGHT: usize = 64;
/// Waiting calls (`wait`, `wait_process`, reads and events with a wait) that one connection carries
/// at a time. They have their own bound so that no number of waits can keep a kill from being sent.
pub const MAX_WAITS_IN_FLIGHT: usize = 1_024;
/// Connections that one listener serves at a time; more of them wait to be accepted.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Frames that are encoded and not yet written.
pub(crate) const MAX_QUEUED_FRAMES: usize = 16;
/// Bytes of request frames that the serving side holds at a time per connection; at the bound it
/// stops reading. It must fit the largest frame.
pub(crate) const MAX_REQUEST_BYTES_HELD: usize = 128 * MIB;
/// Bytes that concurrent output reads of one connection may ask for together.
pub(crate) const MAX_OUTPUT_BYTES_PROMISED: usize = 64 * MIB;
/// What an output read may still ask for when that is used up.
pub(crate) const MIN_OUTPUT_READ_GRANT: u32 = 64 * 1024;
/// Calls with potentially large answers that the serving side runs at a time per connection.
pub(crate) const MAX_LARGE_ANSWERS: usize = 2;

/// Connecting a socket and agreeing on a version.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// The peer's first frame.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// A frame that began makes no progress for this long: the stream is given up.
pub(crate) const STALL_DEADLINE: Duration = Duration::from_secs(60);
/// An answer of a verb that does not wait by itself. Generous: a create runs hooks and boots guests.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(600);
/// What an answer may take beyond the wait that the request itself asks for.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_secs(30);

const MIB: usize = 1024 * 1024;
