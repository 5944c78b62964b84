//! Forms of values: how text is read and written, for keys of the same kind. Values that only one key takes are in `values`.

use std::fmt::Display;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How the value of a key is written.
pub(crate) trait Form {
    type Value;

    /// Describes the values, for the manual.
    fn values() -> String;

    fn read(text: &str) -> Result<Self::Value, String>;

    /// Writes a value so that `read` understands it; `None`: there is nothing to write.
    fn show(value: &Self::Value) -> Option<String>;
}

/// A whole number, `MIN` or more.
pub(crate) struct Number<N, const MIN: u64 = 0>(PhantomData<N>);

impl<N: FromStr + Display + Copy + PartialOrd + TryFrom<u64>, const MIN: u64> Form
    for Number<N, MIN>
{
    type Value = N;

    fn values() -> String {
        at_least("number", MIN)
    }

    fn read(text: &str) -> Result<N, String> {
        let number = number(text)?;
        match N::try_from(MIN).is_ok_and(|min| number >= min) {
            true => Ok(number),
            false => Err(format!("must be {MIN} at least")),
        }
    }

    fn show(value: &N) -> Option<String> {
        Some(value.to_string())
    }
}

fn at_least(noun: &str, min: u64) -> String {
    match min {
        0 => noun.to_owned(),
        _ => format!("{noun}, {min} or more"),
    }
}

pub(super) fn number<N: FromStr>(text: &str) -> Result<N, String> {
    let digits = text.trim().replace('_', "");
    digits.parse().map_err(|_| {
        let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match whole {
            true => format!("`{text}` is too large a number"),
            false => format!("`{text}` is not a whole number, without a sign or a unit"),
        }
    })
}

/// Bytes, `MIN` or more: a number, or one of KiB (K), MiB (M) or GiB (G).
pub(crate) struct Bytes<const MIN: u64 = 0>;

impl<const MIN: u64> Form for Bytes<MIN> {
    type Value = u32;

    fn values() -> String {
        at_least("bytes", MIN)
    }

    fn read(text: &str) -> Result<u32, String> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '_');
        let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
        let shift = match unit.trim() {
            "" | "B" => 0,
            "K" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            _ => {
                return Err(format!(
                    "`{text}` is not a number of bytes, such as 65536, 64K, 64KiB or 6M"
                ));
            }
        };
        let bytes = number::<u64>(digits)?.checked_mul(1 << shift);
        let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| format!("`{text}` is too large a number"))?;
        Number::<u32, MIN>::read(&bytes.to_string())
    }

    fn show(value: &u32) -> Option<String> {
        Some(value.to_string())
    }
}

/// A time in whole units of so many nanoseconds, `MIN` or more.
pub(crate) struct Time<const NANOS: u64, const MIN: u64 = 0>;
pub(crate) type Millis<const MIN: u64 = 0> = Time<1_000_000, MIN>;
pub(crate) type Micros = Time<1_000>;

impl<const NANOS: u64, const MIN: u64> Form for Time<NANOS, MIN> {
    type Value = Duration;

    fn values() -> String {
        let unit = match NANOS {
            1_000 => "microseconds",
            _ => "milliseconds",
        };
        at_least(unit, MIN)
    }

    fn read(text: &str) -> Result<Duration, String> {
        let units = Number::<u64, MIN>::read(text)?;
        let (units_a_second, seconds) = (1_000_000_000 / NANOS, Duration::from_secs);
        Ok(seconds(units / units_a_second) + Duration::from_nanos(units % units_a_second * NANOS))
    }

    fn show(value: &Duration) -> Option<String> {
        Some((value.as_nanos() / u128::from(NANOS)).to_string())
    }
}

/// `on` or `off`.
pub(crate) struct Switch;

impl Form for Switch {
    type Value = bool;

    fn values() -> String {
        "`on`, `off`".into()
    }

    fn read(text: &str) -> Result<bool, String> {
        match text.trim() {
            "on" | "true" => Ok(true),
            "off" | "false" => Ok(false),
            _ => Err(format!("`{text}` is neither `on` nor `off`")),
        }
    }

    fn show(value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

/// Several values with commas between, at most `MAX`; a list in the file.
pub(crate) struct List<F, const MAX: usize = { usize::MAX }>(PhantomData<F>);

impl<F: Form, const MAX: usize> Form for List<F, MAX> {
    type Value = Vec<F::Value>;

    fn values() -> String {
        format!("{}; also a list", F::values())
    }

    fn read(text: &str) -> Result<Self::Value, String> {
        let list: Vec<F::Value> = text.split(',').map(F::read).collect::<Result<_, _>>()?;
        match list.len() {
            count if count > MAX => Err(format!("{count} of them, of {MAX}")),
            _ => Ok(list),
        }
    }

    fn show(value: &Self::Value) -> Option<String> {
        let list: Vec<String> = value.iter().filter_map(F::show).collect();
        (!list.is_empty()).then(|| list.join(","))
    }
}

/// The path of a file.
pub(crate) struct File;

impl Form for File {
    type Value = PathBuf;

    fn values() -> String {
        "file".into()
    }

    fn read(text: &str) -> Result<PathBuf, String> {
        Ok(text.into())
    }

    fn show(value: &PathBuf) -> Option<String> {
        Some(value.display().to_string())
    }
}

/// Makes types that read and write themselves into forms, each with what it is.
macro_rules! own_forms {
    ($($values:literal: $type:ty;)+) => {$(
        impl Form for $type {
            type Value = $type;

            fn values() -> String {
                $values.into()
            }

            fn read(text: &str) -> Result<$type, String> {
                text.trim().parse().map_err(|problem: <$type as std::str::FromStr>::Err| problem.to_string())
            }

            fn show(value: &$type) -> Option<String> {
                Some(value.to_string())
            }
        }
    )+};
}

/// Makes enums into forms, each value by its word.
macro_rules! words {
    ($($type:path { $($word:literal => $value:ident),+ })+) => {$(
        impl Form for $type {
            type Value = $type;

            fn values() -> String {
                [$(concat!("`", $word, "`")),+].join(", ")
            }

            fn read(text: &str) -> Result<Self, String> {
                match text.trim() {
                    $($word => Ok(Self::$value),)+
                    _ => Err($crate::config::forms::no_word(text, &[$($word),+])),
                }
            }

            fn show(value: &Self) -> Option<String> {
                match value {
                    $(Self::$value => Some($word.into()),)+
                }
            }
        }
    )+};
}

pub(super) fn no_word(text: &str, words: &[&str]) -> String {
    match words {
        [one, other] => format!("`{text}` is neither `{one}` nor `{other}`"),
        _ => format!("`{text}` is not one of `{}`", words.join("`, `")),
    }
}

pub(super) use {own_forms, words};
