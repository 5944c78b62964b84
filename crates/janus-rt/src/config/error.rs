//! Why configuration was refused, in words that say what to write instead.

use std::fmt;

/// A key or value that was not understood.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file or "environment" it stood in; empty for the builder.
    origin: String,
    message: String,
}

impl ConfigError {
    pub(crate) fn new(message: String) -> ConfigError {
        ConfigError {
            origin: String::new(),
            message,
        }
    }

    pub(crate) fn value(key: &str, problem: String) -> ConfigError {
        ConfigError::new(format!("`{key}`: {problem}"))
    }

    /// Refuses the first of `keys` that is set although there is none of what it belongs to.
    pub(super) fn lonely(
        keys: &[(&str, bool)],
        belongs: bool,
        problem: &str,
    ) -> Result<(), ConfigError> {
        match keys.iter().find(|(_, set)| *set && !belongs) {
            Some((key, _)) => Err(ConfigError::value(key, problem.to_owned())),
            None => Ok(()),
        }
    }

    /// An unknown `name`, with the nearest of `valid` when one is near, else all of them.
    pub(crate) fn unknown(name: &str, valid: &[String]) -> ConfigError {
        let hint = match nearest(name, valid) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the valid ones are {}", valid.join(", ")),
        };
        ConfigError::new(format!("unknown key `{name}`; {hint}"))
    }

    pub(crate) fn within(mut self, origin: &str) -> ConfigError {
        self.origin = origin.to_owned();
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.is_empty() {
            write!(f, "{}: ", self.origin)?;
        }
        f.write_str(&self.message)
    }
}

/// Prints like `Display`: a `main` that returns the error prints it this way.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// The closest valid name, unless none is close enough to be a slip of the finger.
pub(super) fn nearest<'a>(name: &str, valid: &'a [String]) -> Option<&'a str> {
    let (distance, best) = valid.iter().map(|v| (edit_distance(name, v), v)).min()?;
    if distance <= 2.max(name.len() / 3) {
        return Some(best.as_str());
    }
    // Cut short, as `close` for `close_ms`.
    let longer = valid
        .iter()
        .filter(|v| name.len() >= 3 && v.starts_with(name));
    longer.min_by_key(|v| v.len()).map(String::as_str)
}

/// Levenshtein distance; both names are short (a key or a variable), a longer one is cut.
fn edit_distance(a: &str, b: &str) -> usize {
    const LENGTH_MAX: usize = 64;
    let b: Vec<u8> = b.bytes().take(LENGTH_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().take(LENGTH_MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
