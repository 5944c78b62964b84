//! Values of all keys in force, each with its origin; printed as a `janus.toml` of the values from file and environment.
//! Reading is in `source`, the form of values in `forms`.

use std::fmt::{self, Display};

use toml_writer::ToTomlValue;

use super::{KEYS, Key, Partial, Settings};

/// Source of a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// No source: it is the default.
    Default,
    /// The program, by the builder.
    Builder,
    /// A line of this file.
    File(String),
    /// This variable.
    Environment(String),
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Builder => f.write_str("builder"),
            Origin::File(path) => f.write_str(path),
            Origin::Environment(variable) => f.write_str(variable),
        }
    }
}

/// One key's value, with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// Values of all keys in force. Printed, it is a `janus.toml` with every key; those that neither file nor environment set are
/// commented out, with their defaults or the builder's values.
///
/// ```
/// let effective = janus::Runtime::builder().ignore_environment().cores(3).effective().unwrap();
/// assert_eq!(effective.value("close_ms"), Some("500"));
/// assert_eq!(effective.origin("cores"), Some(&janus::Origin::Builder));
/// assert!(effective.to_string().contains("# close_ms = \"500\""));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    entries: Vec<Entry>,
    /// Keys whose values are the builder's, or defaults.
    others: Vec<Entry>,
}

impl Effective {
    /// In the order in which it was said.
    #[cfg(test)]
    pub(crate) fn new(entries: Vec<Entry>) -> Effective {
        Effective {
            entries,
            others: Vec::new(),
        }
    }

    /// Collects the values set by file and environment, and those in force with the builder, and without it if that makes
    /// sense.
    pub(crate) fn of(
        entries: Vec<Entry>,
        without_builder: Option<&Settings>,
        settings: &Settings,
    ) -> Effective {
        let defaults = Partial::default().resolve().ok();
        let before = without_builder.or(defaults.as_ref());
        let mut others = Vec::new();
        for &Key {
            name: key, show, ..
        } in KEYS
        {
            let value = show(settings);
            let origin = match before {
                Some(before) if show(before) == value => Origin::Default,
                _ => Origin::Builder,
            };
            let spoken = entries.iter().any(|entry| entry.key == key);
            if let Some(value) = value.filter(|_| !spoken || origin == Origin::Builder) {
                others.push(Entry { key, value, origin });
            }
        }
        Effective { entries, others }
    }

    fn last(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.key == key)
    }

    fn in_force(&self, key: &str) -> Option<&Entry> {
        let other = self.others.iter().find(|other| other.key == key);
        other.or_else(|| self.last(key))
    }

    /// The value of a key; `None`: it has none, and nothing is chosen by it.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.in_force(key).map(|entry| entry.value.as_str())
    }

    /// Returns the origin of a key's value; `None`: it has none.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.in_force(key).map(|entry| &entry.origin)
    }

    /// Keys of which file and environment say something else in `other`.
    pub(crate) fn differs(&self, other: &Effective) -> impl Iterator<Item = &'static Key> {
        let differ = move |key: &&Key| {
            let [this, that] = [self, other].map(|of| of.last(key.name));
            this.map(|entry| &entry.value) != that.map(|entry| &entry.value)
        };
        KEYS.iter().filter(differ)
    }
}

impl Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in KEYS.iter().map(|key| key.name) {
            match self.in_force(key) {
                Some(entry) => {
                    let comment = match entry.origin {
                        Origin::Default | Origin::Builder => "# ",
                        _ => "",
                    };
                    let value = entry.value.to_toml_value();
                    let line = format!("{comment}{key} = {value}");
                    writeln!(f, "{line:<39} # {}", entry.origin)?;
                }
                None => writeln!(f, "# {key} =")?,
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
        from_environment(pairs, |strange| panic!("{strange:?}")).unwrap()
    }

    #[test]
    fn each_value_says_where_it_comes_from_and_the_last_word_counts() {
        let file = from_text("seed = 1\nbacklog = 7\n[tap]\nname = \"t0\"").unwrap();
        let both = file.within("janus.toml").overlay(environment(&[
            ("JANUS_SEED", "2"),
            ("JANUS_ROUTE", "10.0.0.0/8 via 192.0.2.254"),
        ]));
        let effective = Effective::new(both.entries);
        assert_eq!(effective.value("seed"), Some("2"));
        let variable = Origin::Environment("JANUS_SEED".into());
        assert_eq!(effective.origin("seed"), Some(&variable));
        let file = Origin::File("janus.toml".into());
        assert_eq!(effective.origin("tap_name"), Some(&file));
        assert_eq!(
            effective.origin("cores"),
            None,
            "nobody looked at the defaults"
        );
    }

    #[test]
    fn what_nobody_said_is_a_default_and_the_builder_has_the_last_word() {
        let words = from_text("backlog = 7\nclose_ms = 20\ntrace = \"t\"").unwrap();
        let file = words.within("janus.toml");
        let builder = from_text("close_ms = 30\ncores = 3\nwarn_blocked_ms = 100").unwrap();
        let said = file.entries.clone();
        let without = file.clone().resolve().unwrap();
        let settings = file.overlay(builder).resolve().unwrap();
        let effective = Effective::of(said, Some(&without), &settings);
        let word = |key| Some((effective.value(key)?, effective.origin(key)?.to_string()));
        let is = |value, origin: &str| Some((value, origin.to_owned()));
        assert_eq!(word("backlog"), is("7", "janus.toml"));
        assert_eq!(word("close_ms"), is("30", "builder"));
        assert_eq!(word("cores"), is("3", "builder"));
        assert_eq!(word("warn_blocked_ms"), is("100", "default"));
        assert_eq!(word("receive_buffer_max"), is("6291456", "default"));
        assert_eq!(word("gateway"), None);
        let printed = effective.to_string();
        assert!(printed.contains("# close_ms = \"30\""), "{printed}");
        assert!(printed.contains("\nbacklog = \"7\""), "{printed}");
        assert_eq!(printed.lines().count(), KEYS.len());
        // Lines that are commented out may be set: the meaning stays.
        let all: String = printed
            .lines()
            .filter(|line| line.contains('"'))
            .map(|line| format!("{}\n", line.trim_start_matches("# ")))
            .collect();
        let again = from_text(&all).unwrap().resolve().unwrap();
        for key in KEYS {
            assert_eq!((key.show)(&again), (key.show)(&settings), "{}", key.name);
        }
    }

    #[test]
    fn what_is_printed_is_a_file_that_says_the_same() {
        let text = "cores = 3\naddress = [\"192.0.2.7/24\", \"2001:db8::7/64\"]\ntrace = 'a \"b\".pcapng'\nclose_ms = 20";
        let first = Effective::new(from_text(text).unwrap().entries);
        let printed = first.to_string();
        let second = Effective::new(from_text(&printed).unwrap().entries);
        assert!(first.differs(&second).next().is_none(), "{printed}");
        assert_eq!(printed.lines().count(), KEYS.len());
        assert!(printed.contains("close_ms = \"20\""), "{printed}");
        let other = Effective::new(from_text("cores = 4\nseed = 1").unwrap().entries);
        let differing: Vec<_> = first.differs(&other).map(|key| key.name).collect();
        assert_eq!(differing, ["cores", "address", "trace", "seed", "close_ms"]);
    }
}
