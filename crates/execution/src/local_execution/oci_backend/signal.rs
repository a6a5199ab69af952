//! Signal names as images and users write them.

use a3sbox_core::ExecutionManagerResult;

use super::error::invalid;

/// Linux numbers, the same on every architecture that is supported.
const SIGNALS: [(&str, i32); 33] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
    ("RTMIN", 34),
];
/// Real-time signals are written relative to the first or the last one.
const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

/// The number of `15`, `TERM`, `SIGTERM` or `SIGRTMIN+3`, in any case.
pub(super) fn signal_number(text: &str) -> ExecutionManagerResult<i32> {
    let trimmed = text.trim().to_ascii_uppercase();
    let name = trimmed.strip_prefix("SIG").unwrap_or(&trimmed);
    let number = name
        .parse::<i32>()
        .ok()
        .or_else(|| {
            SIGNALS
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, number)| *number)
        })
        .or_else(|| real_time(name));
    number
        .filter(|number| (1..=RTMAX).contains(number))
        .ok_or_else(|| invalid(format!("{text:?} is not a signal")))
}

fn real_time(name: &str) -> Option<i32> {
    if let Some(offset) = name.strip_prefix("RTMIN+") {
        return RTMIN.checked_add(offset.parse().ok()?);
    }
    match name.strip_prefix("RTMAX")? {
        "" => Some(RTMAX),
        offset => RTMAX.checked_sub(offset.strip_prefix('-')?.parse().ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::signal_number;

    #[test]
    fn signals_are_known_by_number_and_by_name_in_any_case() {
        for (text, number) in [
            ("15", 15),
            ("TERM", 15),
            ("sigterm", 15),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("RTMAX", 64),
        ] {
            assert_eq!(signal_number(text).unwrap(), number, "{text}");
        }
        for text in ["", "0", "65", "-9", "SIGNOTHING", "RTMIN+99"] {
            assert!(signal_number(text).is_err(), "{text}");
        }
    }
}
