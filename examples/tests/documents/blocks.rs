//! Fenced blocks of the documents, and what they are.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The document, from the repository's root.
    pub(crate) file: String,
    /// Of the first fence, from 1.
    pub(crate) line: usize,
    /// The words behind the first fence.
    pub(crate) info: String,
    pub(crate) text: String,
}

/// By the words behind the first fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `rust`, with rustdoc's words.
    Rust,
    /// `sh`: each line is for a shell.
    Commands,
    /// `text output`: what the commands before it say, in order, with `…` for what is left out; digits may be others.
    Output,
    /// `toml`
    Toml,
    /// `yaml`
    Yaml,
    /// `c`: a program, or a part of one. The tests of `janus-c` compile those of its document.
    C,
    /// `packetdrill`: a whole script.
    Script,
    /// `text`: a picture, a grammar, a formula.
    Text,
    Unknown,
}

impl Block {
    pub(crate) fn kind(&self) -> Kind {
        match self.info.as_str() {
            "sh" => Kind::Commands,
            "text output" => Kind::Output,
            "toml" => Kind::Toml,
            "yaml" => Kind::Yaml,
            "c" => Kind::C,
            "packetdrill" => Kind::Script,
            "text" => Kind::Text,
            info if info.split(',').next() == Some("rust") => Kind::Rust,
            _ => Kind::Unknown,
        }
    }

    /// The command lines, each whole, without comments.
    pub(crate) fn lines(&self) -> Vec<String> {
        let whole = self.text.replace("\\\n", " ");
        let lines = whole.lines().map(|line| {
            let line = line.split(" # ").next().unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        lines.filter(|line| !line.is_empty()).collect()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

fn markdown(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            markdown(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The blocks of all documents in the repository, in order.
pub(crate) fn documents() -> Vec<Block> {
    let mut files = Vec::new();
    markdown(root(), &mut files);
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let file = file.strip_prefix(root()).unwrap().display().to_string();
        blocks(&file, &text, &mut all);
    }
    assert!(all.len() > 20, "the documents are found");
    all
}

fn blocks(file: &str, text: &str, all: &mut Vec<Block>) {
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                open = Some(Block {
                    file: file.to_owned(),
                    line: index + 1,
                    info: info.trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some("")) => all.extend(open.take()),
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{file}: a block does not end");
}

/// The block before this one in its document.
pub(crate) fn before(block: &Block) -> Option<Block> {
    let mut all = documents().into_iter();
    all.rfind(|other| other.file == block.file && other.line < block.line)
}

/// Whether `said` has the lines of `output`, in order; `…` stands for any lines between.
pub(crate) fn is_said(output: &Block, said: &str) -> Result<(), String> {
    let mut rest = said.lines().map(loose);
    let mut skipping = false;
    for line in output.text.lines() {
        if line.trim() == "…" {
            skipping = true;
            continue;
        }
        let wanted = loose(line);
        let found = match skipping {
            true => rest.any(|there| there == wanted),
            false => rest.next() == Some(wanted),
        };
        if !found {
            return Err(format!("`{line}` is not said in:\n{said}"));
        }
        skipping = false;
    }
    Ok(())
}

/// Words apart by one blank, numbers as 0.
fn loose(line: &str) -> String {
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    for char in words.chars() {
        match char.is_ascii_digit() {
            true if out.ends_with('0') => {}
            true => out.push('0'),
            false => out.push(char),
        }
    }
    out
}

#[test]
fn blocks_are_cut_out_whole() {
    let text = "a\n```sh\none \\\n    two # why\n\n```\nb\n```text output\nc 12\n…\nd\n```\n";
    let mut all = Vec::new();
    blocks("x.md", text, &mut all);
    assert_eq!(all[0].lines(), ["one two"]);
    assert_eq!(
        (all[0].kind(), all[1].kind()),
        (Kind::Commands, Kind::Output)
    );
    assert_eq!((all[0].line, all[1].line), (2, 8));
    assert!(is_said(&all[1], "c   345\nx\nd\n").is_ok());
    assert!(
        is_said(&all[1], "x\nc 345\nd\n").is_err(),
        "not in its place"
    );
    assert!(is_said(&all[1], "c 345\nx\n").is_err(), "not there");
}
