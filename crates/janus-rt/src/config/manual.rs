//! The manual of all keys, for `docs/configuration.md` and `janus config --manual`.

use std::fmt::{self, Write};

use super::{KEYS, Key, Partial, Settings};

/// Returns two tables in Markdown of all keys of `janus.toml`, the second of those that only experts need.
pub fn manual() -> String {
    let mut text = String::new();
    // Neither fails: a string takes everything, and defaults make sense.
    if let Ok(defaults) = Partial::default().resolve() {
        let _ = tables(&mut text, &defaults);
    }
    text
}

fn tables(text: &mut String, defaults: &Settings) -> fmt::Result {
    let head = "| key | values | meaning | default | live |\n|---|---|---|---|---|";
    for expert in [false, true] {
        match expert {
            false => writeln!(text, "\n{head}")?,
            true => writeln!(text, "\nKeys for experts and for trials:\n\n{head}")?,
        }
        for key in KEYS.iter().filter(|key| key.expert == expert) {
            let Key { name, values, .. } = key;
            let (values, meaning) = (values(), key.doc.concat());
            let default = match key.usual {
                Some(words) => words.to_owned(),
                None => (key.show)(defaults).map_or("none".into(), |value| format!("`{value}`")),
            };
            let live = key.live.map_or("", |_| "yes");
            let meaning = meaning.trim().trim_end_matches('.');
            writeln!(
                text,
                "| `{name}` | {values} | {meaning} | {default} | {live} |"
            )?;
        }
    }
    text.push('\n');
    Ok(())
}
