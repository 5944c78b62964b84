//! What file and environment say, key by key, and who said it; printed as a `janus.toml` that says the same. Reading is in
//! `source`.

use std::fmt::{self, Display};

use super::keys::KEYS;

/// Who gave a key its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A line of this file.
    File(String),
    /// This variable.
    Environment(String),
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => f.write_str(path),
            Origin::Environment(variable) => f.write_str(variable),
        }
    }
}

/// A key that somebody said something of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// What file and environment came to. Printed, it is a `janus.toml` with every key; those that nobody spoke of, and so have
/// their defaults, are commented out.
///
/// ```
/// let effective = janus::Runtime::builder().alone().effective().unwrap();
/// assert_eq!(effective.value("cores"), None);
/// assert!(effective.to_string().contains("# drain_ms ="));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    said: Vec<Said>,
}

impl Effective {
    /// In the order in which it was said.
    pub(crate) fn new(said: Vec<Said>) -> Effective {
        Effective { said }
    }

    fn last(&self, key: &str) -> Option<&Said> {
        self.said.iter().rev().find(|said| said.key == key)
    }

    /// The value of a key; `None`: nobody spoke of it.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.last(key).map(|said| said.value.as_str())
    }

    /// Who gave a key its value; `None`: nobody did.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.last(key).map(|said| &said.origin)
    }

    /// Keys of which `other` says something else.
    pub(crate) fn differs(&self, other: &Effective) -> Vec<&'static str> {
        let keys = KEYS.iter().map(|key| key.name);
        keys.filter(|key| self.value(key) != other.value(key))
            .collect()
    }
}

impl Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in KEYS {
            match self.last(key.name) {
                Some(said) => {
                    let value = toml::Value::String(said.value.clone());
                    let line = format!("{} = {value}", key.name);
                    writeln!(f, "{line:<39} # {}", said.origin)?;
                }
                None => writeln!(f, "# {} =", key.name)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::{from_environment, from_text};
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> super::super::Partial {
        let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        from_environment(pairs).unwrap()
    }

    #[test]
    fn each_value_says_where_it_comes_from_and_the_last_word_counts() {
        let file = from_text("seed = 1\nbacklog = 7\n[tap]\nname = \"t0\"").unwrap();
        let both = file.within("janus.toml").overlay(environment(&[
            ("JANUS_SEED", "2"),
            ("JANUS_ROUTE", "10.0.0.0/8 via 192.0.2.254"),
        ]));
        let effective = Effective::new(both.said);
        assert_eq!(effective.value("seed"), Some("2"));
        let variable = Origin::Environment("JANUS_SEED".into());
        assert_eq!(effective.origin("seed"), Some(&variable));
        let file = Origin::File("janus.toml".into());
        assert_eq!(effective.origin("tap_name"), Some(&file));
        assert_eq!(effective.origin("cores"), None);
    }

    #[test]
    fn what_is_printed_is_a_file_that_says_the_same() {
        let text = "cores = 3\naddress = [\"192.0.2.7/24\", \"2001:db8::7/64\"]\ntrace = 'a \"b\".pcapng'\ndrain_ms = 20";
        let first = Effective::new(from_text(text).unwrap().said);
        let printed = first.to_string();
        let second = Effective::new(from_text(&printed).unwrap().said);
        assert!(first.differs(&second).is_empty(), "{printed}");
        assert_eq!(printed.lines().count(), KEYS.len());
        assert!(printed.contains("drain_ms = \"20\""), "{printed}");
        let other = Effective::new(from_text("cores = 4\nseed = 1").unwrap().said);
        assert_eq!(
            first.differs(&other),
            ["cores", "address", "trace", "seed", "drain_ms"]
        );
    }
}
