//! Reading `janus.toml` and the environment into a [`Partial`], refusing what is not understood.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::effective::Entry;
use super::error::nearest;
use super::forms::{Form, Switch};
use super::{ConfigError, KEYS, Origin, Partial};

/// Read when it is there and `JANUS_CONFIG` names no other file.
const FILE_NAME: &str = "janus.toml";
const PREFIX: &str = "JANUS_";
/// `JANUS_CONFIG` names the file itself, so it is no key of it.
const FILE_VARIABLE: &str = "JANUS_CONFIG";
/// Where the library is that a program built with `dpdk-dlopen` loads; read there.
const SHIM_VARIABLE: &str = "JANUS_DPDK_SHIM";
/// First words of variables that other parts of the project read (benches, tests, tools).
const FOREIGN: &[&str] = &["BENCH", "PRIVILEGED", "TEST", "SIM", "FUZZ", "CI", "LOG"];

/// Reads the `JANUS_*` variables. `variables` is the environment, passed in so that tests need not change their own. An empty
/// variable is skipped, and one that is no setting is told to `strange`: Kubernetes sets `JANUS_PORT` in each pod beside a
/// service of that name.
pub(crate) fn from_environment(
    variables: impl Iterator<Item = (String, String)>,
    strange: impl FnOnce(&[String]),
) -> Result<Partial, ConfigError> {
    let mut partial = Partial::default();
    let mut unknown = Vec::new();
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let foreign = FOREIGN.contains(&rest.split('_').next().unwrap_or(rest));
        let empty = value.trim().is_empty();
        if foreign || empty || name == FILE_VARIABLE || name == SHIM_VARIABLE {
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.name.to_uppercase() == rest) else {
            let mut valid: Vec<String> = KEYS
                .iter()
                .map(|k| format!("{PREFIX}{}", k.name.to_uppercase()))
                .collect();
            valid.push(FILE_VARIABLE.to_owned());
            unknown.push(match nearest(&name, &valid) {
                Some(near) => format!("{name} (did you mean {near}?)"),
                None => name,
            });
            continue;
        };
        (key.read)(&mut partial, &value)
            .map_err(|problem| ConfigError::value(&name, problem).within("environment"))?;
        partial.entries.push(Entry {
            key: key.name,
            value,
            origin: Origin::Environment(name),
        });
    }
    if !unknown.is_empty() {
        strange(&unknown);
    }
    Ok(partial)
}

/// Reads the file named by `explicit`, else `janus.toml` in the working directory if there is one.
pub(crate) fn from_file(explicit: Option<&Path>) -> Result<Partial, ConfigError> {
    let path = explicit.unwrap_or(Path::new(FILE_NAME));
    let origin = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if explicit.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Partial::default());
        }
        Err(error) => {
            return Err(ConfigError::new(format!("cannot be read: {error}")).within(&origin));
        }
    };
    let partial = from_text(&text).map_err(|error| error.within(&origin))?;
    Ok(partial.within(&origin))
}

impl Partial {
    /// The file that all of it stood in.
    pub(super) fn within(mut self, path: &str) -> Partial {
        for entry in &mut self.entries {
            entry.origin = Origin::File(path.to_owned());
        }
        self
    }
}

pub(super) fn from_text(text: &str) -> Result<Partial, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::new(error.to_string()))?;
    let mut partial = Partial::default();
    walk(table.get_ref(), "", &mut partial)?;
    Ok(partial)
}

/// Tables only group: `[tap] name` and `tap_name` are the same key. TOML bounds the depth while parsing.
fn walk(table: &DeTable<'_>, prefix: &str, partial: &mut Partial) -> Result<(), ConfigError> {
    for (name, value) in table {
        let (name, value) = (name.get_ref(), value.get_ref());
        let full = format!("{prefix}{}", name.replace('-', "_"));
        if let DeValue::Table(inner) = value {
            walk(inner, &format!("{full}_"), partial)?;
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.name == full) else {
            let valid: Vec<String> = KEYS.iter().map(|k| k.name.to_owned()).collect();
            return Err(ConfigError::unknown(&full, &valid));
        };
        // TOML's own `true` and `false` mean something for keys that are on or off, and for no others.
        let switch = value
            .as_bool()
            .filter(|_| (key.values)() == Switch::values());
        let text = switch.map(|on| on.to_string()).or_else(|| scalar(value));
        let text = text.ok_or_else(|| {
            ConfigError::value(
                &full,
                "needs text in quotes, a whole number, or a list of them".into(),
            )
        })?;
        (key.read)(partial, &text).map_err(|problem| ConfigError::value(&full, problem))?;
        partial.entries.push(Entry {
            key: key.name,
            value: text,
            origin: Origin::File(String::new()),
        });
    }
    Ok(())
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix());
            number.ok().map(|number| number.to_string())
        }
        DeValue::Array(items) => items
            .iter()
            .map(|item| scalar(item.get_ref()))
            .collect::<Option<Vec<_>>>()
            .map(|list| list.join(",")),
        _ => None,
    }
}
