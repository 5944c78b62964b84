//! `janus report`: one page of what the benches have written, their pictures and their figures.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to which `cargo bench` has written.
    #[arg(long, default_value = "target/bench-report")]
    from: PathBuf,
    /// The page; in that folder if nothing is said.
    #[arg(long)]
    to: Option<PathBuf>,
}

/// Of the page. It needs no other file.
const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;font-size:13px}td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}\
    td.n{text-align:right;white-space:nowrap}code{font-size:12px}figure{margin:1em 0}svg{max-width:100%;height:auto}\
    summary{cursor:pointer}";

/// The file that a bench has written, and the pictures beside it.
struct Bench {
    name: String,
    commit: String,
    command: String,
    rows: Vec<Row>,
    pictures: Vec<String>,
}

struct Row {
    metric: String,
    value: Option<f64>,
    unit: String,
    params: String,
}

pub(crate) fn run(args: &Args) -> janus::Result<ExitCode> {
    let benches = read(&args.from)?;
    let path = (args.to.clone()).unwrap_or_else(|| args.from.join("index.html"));
    fs::write(&path, page(&benches)).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{} benches: {}", benches.len(), path.display());
    Ok(ExitCode::SUCCESS)
}

/// All benches of a folder, by name.
fn read(folder: &Path) -> janus::Result<Vec<Bench>> {
    let nothing = || {
        let folder = folder.display();
        format!(
            "no bench has written to {folder}: run `cargo bench --bench accept_rate`, or name a folder by `--from`"
        )
    };
    let entries = fs::read_dir(folder).map_err(|error| format!("{} ({error})", nothing()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let ends = |path: &&PathBuf, ending: &str| path.extension() == Some(OsStr::new(ending));
    let mut benches = Vec::new();
    for path in files.iter().filter(|path| ends(path, "json")) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let own = format!("{stem}.");
        let is_its = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ends(path, "svg") && name.starts_with(&own)
        };
        let pictures = files.iter().filter(is_its).map(fs::read_to_string);
        let pictures = pictures.collect::<Result<_, _>>()?;
        let text = fs::read_to_string(path)?;
        let bench = Bench::of(&text, pictures);
        benches.push(bench.map_err(|error| format!("{}: {error}", path.display()))?);
    }
    if benches.is_empty() {
        return Err(nothing().into());
    }
    Ok(benches)
}

impl Bench {
    fn of(text: &str, pictures: Vec<String>) -> Result<Bench, String> {
        let all: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let said = |of: &Value, key: &str| {
            let text = of.get(key).and_then(Value::as_str);
            text.map(str::to_owned)
                .ok_or_else(|| format!("it says no `{key}`: is it of a bench?"))
        };
        let rows = all.get("rows").and_then(Value::as_array);
        let rows = rows
            .ok_or("it has no `rows`: is it of a bench?")?
            .iter()
            .map(|row| {
                Ok(Row {
                    metric: said(row, "metric")?,
                    value: row.get("value").and_then(Value::as_f64),
                    unit: said(row, "unit")?,
                    params: row
                        .get("params")
                        .and_then(Value::as_object)
                        .map_or_else(String::new, params),
                })
            });
        Ok(Bench {
            name: said(&all, "bench")?,
            commit: said(&all, "commit")?,
            command: said(&all, "command")?,
            rows: rows.collect::<Result<_, String>>()?,
            pictures,
        })
    }
}

fn params(params: &Map<String, Value>) -> String {
    let one = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        Value::Number(number) => format!("{name} {}", figure(number.as_f64())),
        other => format!("{name} {other}"),
    };
    params.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A number as people read it; what has none is a dash.
fn figure(value: Option<f64>) -> String {
    let Some(value) = value else {
        return "–".into();
    };
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value}"),
        1_000.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            char => out.push(char),
        }
    }
    out
}

fn page(benches: &[Bench]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Janus: benches</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>What the benches found</h1>\n<p>"
    );
    let links = benches.iter().map(|bench| {
        let name = escaped(&bench.name);
        format!("<a href=\"#{name}\">{name}</a>")
    });
    out += &links.collect::<Vec<_>>().join(" · ");
    out += "</p>\n";
    for bench in benches {
        bench.section(&mut out);
    }
    out + "</body></html>\n"
}

impl Bench {
    fn section(&self, out: &mut String) {
        let name = escaped(&self.name);
        let (commit, command) = (escaped(&self.commit), escaped(&self.command));
        let _ = writeln!(
            out,
            "<section><h2 id=\"{name}\">{name}</h2>\n<p><code>{command}</code><br>of <code>{commit}</code></p>"
        );
        for picture in &self.pictures {
            let _ = writeln!(out, "<figure>{picture}</figure>");
        }
        // A picture says it first; without one the figures are what there is.
        let open = if self.pictures.is_empty() {
            " open"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<details{open}><summary>{} figures</summary><table>\n<tr><th>metric</th><th>value</th><th></th><th>of</th></tr>",
            self.rows.len()
        );
        for row in &self.rows {
            let (metric, unit) = (escaped(&row.metric), escaped(&row.unit));
            let _ = writeln!(
                out,
                "<tr><td>{metric}</td><td class=\"n\">{}</td><td>{unit}</td><td>{}</td></tr>",
                figure(row.value),
                escaped(&row.params)
            );
        }
        out.push_str("</table></details></section>\n");
    }
}
