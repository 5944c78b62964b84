//! The `Date` header (RFC 9110 section 5.6.7): asked of the system once a turn of a core, formatted once a second, copied otherwise.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
const LEN: usize = 29;
/// Bytes before it and after it in the header's line.
const BEFORE: &[u8; 6] = b"date: ";
const AFTER: &[u8; 2] = b"\r\n";
/// Bytes of the line.
const LINE: usize = BEFORE.len() + LEN + AFTER.len();

/// The line that was returned last.
struct Last {
    /// Time of the transport's clock, which stands still during a turn; `None` before the first date.
    asked_at: Cell<Option<Duration>>,
    seconds: Cell<u64>,
    line: Cell<[u8; LINE]>,
}

thread_local! {
    static LAST: Last = const {
        Last {
            asked_at: Cell::new(None),
            seconds: Cell::new(u64::MAX),
            line: Cell::new([0; LINE]),
        }
    };
}

/// Returns the header's line with the present date, which is the last one while the transport's clock says the same time.
#[inline]
pub(crate) fn line(clock: Duration) -> [u8; LINE] {
    LAST.with(|last| {
        if last.asked_at.get() != Some(clock) {
            last.ask(clock);
        }
        last.line.get()
    })
}

impl Last {
    #[cold]
    fn ask(&self, clock: Duration) {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.asked_at.set(Some(clock));
        if self.seconds.replace(seconds) != seconds {
            let mut line = [0; LINE];
            line[..BEFORE.len()].copy_from_slice(BEFORE);
            line[BEFORE.len()..][..LEN].copy_from_slice(&format(seconds));
            line[BEFORE.len() + LEN..].copy_from_slice(AFTER);
            self.line.set(line);
        }
    }
}

/// Formats a date from seconds since 1970, in UTC. Years above 9999 show their last four digits.
fn format(seconds: u64) -> [u8; LEN] {
    const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"Day, 00 Mon 0000 00:00:00 GMT";
    let weekday = (days % 7) as usize * 3;
    text[..3].copy_from_slice(&DAYS[weekday..weekday + 3]);
    let name = (month - 1) as usize * 3;
    text[8..11].copy_from_slice(&MONTHS[name..name + 3]);
    let mut two = |at: usize, value: u64| {
        text[at] = b'0' + (value / 10 % 10) as u8;
        text[at + 1] = b'0' + (value % 10) as u8;
    };
    two(5, day);
    two(12, year / 100 % 100);
    two(14, year % 100);
    two(17, rest / 3600);
    two(20, rest / 60 % 60);
    two(23, rest % 60);
    text
}

/// Returns year, month and day of a day since 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so that the
/// leap day is the last of a year; a cycle of 400 years has 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468; // days from 0000-03-01 to 1970-01-01
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (cycle * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seconds: u64) -> String {
        String::from_utf8(format(seconds).to_vec()).unwrap()
    }

    #[test]
    fn known_dates() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT"); // the RFC's example
        assert_eq!(text(951_782_399), "Mon, 28 Feb 2000 23:59:59 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(text(951_868_800), "Wed, 01 Mar 2000 00:00:00 GMT");
        assert_eq!(text(4_102_444_799), "Thu, 31 Dec 2099 23:59:59 GMT");
        assert_eq!(text(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT"); // no leap day in 2100
    }

    #[test]
    fn days_follow_each_other() {
        let mut last = civil(0);
        for day in 1..400 * 366 {
            let next = civil(day);
            let ordinary = next == (last.0, last.1, last.2 + 1);
            let month = next == (last.0, last.1 + 1, 1) && last.2 >= 28;
            let year = next == (last.0 + 1, 1, 1) && (last.1, last.2) == (12, 31);
            assert!(ordinary || month || year, "{last:?} {next:?}");
            last = next;
        }
    }

    #[test]
    fn now_is_cached_within_a_turn_and_a_second() {
        let turn = Duration::from_millis(1);
        let first = line(turn);
        assert!(first.starts_with(b"date: ") && first.ends_with(b" GMT\r\n"));
        let old = [b'x'; LINE];
        LAST.with(|last| last.line.set(old));
        assert_eq!(line(turn), old);
        LAST.with(|last| last.seconds.set(0));
        assert!(line(2 * turn).ends_with(b" GMT\r\n"));
    }
}
