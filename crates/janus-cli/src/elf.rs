//! An executable's words of itself: its loader, the symbols that it wants from others, how it was made. 64-bit little-endian ELF, which
//! is all that Janus runs on; whatever is cut or twisted is no executable.

use std::collections::BTreeSet;
use std::ops::Range;

/// An executable or a library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The loader that it names; none: static.
    pub(crate) loader: Option<String>,
    /// Names that it wants from others.
    pub(crate) imports: BTreeSet<String>,
    /// Made by Go, whose programs call the kernel themselves.
    pub(crate) is_go: bool,
    /// `syscall` instructions, or bytes that look like them, in what is executed.
    pub(crate) raw_calls: usize,
}

const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const EXECUTES: u32 = 1;
const DYNAMIC_SYMBOLS: u32 = 11;
const NOTE: u32 = 7;
/// Bytes of a segment's entry, a section's, a symbol's.
const SEGMENT: usize = 56;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn size(&self, at: usize) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.array(at)?)).ok()
    }

    fn range(&self, offset: usize, len: usize) -> Option<&'a [u8]> {
        self.0.get(Range {
            start: offset,
            end: offset.checked_add(len)?,
        })
    }

    fn text(&self, at: usize) -> Option<String> {
        let rest = self.0.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    }
}

/// A table of equal entries: where it begins, and how many there are.
fn table(file: &Bytes<'_>, offset: usize, entry: usize, count: usize) -> Option<Vec<usize>> {
    file.range(offset, entry.checked_mul(count)?)?;
    Some((0..count).map(|at| offset + at * entry).collect())
}

impl Elf {
    /// Reads a file's bytes; `None`: it is no executable that could run here.
    pub(crate) fn read(file: &[u8]) -> Option<Elf> {
        let file = Bytes(file);
        if file.range(0, 6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
            return None;
        }
        let mut elf = Elf::default();
        let segments = usize::from(file.u16(56)?);
        for at in table(&file, file.size(32)?, SEGMENT, segments)? {
            let (kind, flags) = (file.u32(at)?, file.u32(at + 4)?);
            let (offset, len) = (file.size(at + 8)?, file.size(at + 32)?);
            match kind {
                INTERPRETER => {
                    file.range(offset, len)?;
                    elf.loader = Some(file.text(offset)?);
                }
                LOAD if flags & EXECUTES != 0 => {
                    let code = file.range(offset, len)?;
                    elf.raw_calls += code.windows(2).filter(|pair| *pair == [0x0f, 0x05]).count();
                }
                _ => {}
            }
        }
        elf.read_sections(&file)?;
        Some(elf)
    }

    fn read_sections(&mut self, file: &Bytes<'_>) -> Option<()> {
        let (offset, count) = (file.size(40)?, usize::from(file.u16(60)?));
        let sections = table(file, offset, SECTION, count)?;
        for at in &sections {
            let (offset, len) = (file.size(at + 24)?, file.size(at + 32)?);
            match file.u32(at + 4)? {
                DYNAMIC_SYMBOLS => {
                    let names = *sections.get(usize::try_from(file.u32(at + 40)?).ok()?)?;
                    self.read_symbols(file, (offset, len), file.size(names + 24)?)?;
                }
                // A note's name is behind its three words.
                NOTE => self.is_go |= file.range(offset, len)?.get(12..15) == Some(b"Go\0"),
                _ => {}
            }
        }
        Some(())
    }

    fn read_symbols(
        &mut self,
        file: &Bytes<'_>,
        (offset, len): (usize, usize),
        names: usize,
    ) -> Option<()> {
        for at in table(file, offset, SYMBOL, len / SYMBOL)? {
            let (name, section) = (file.u32(at)?, file.u16(at + 6)?);
            if section == 0 && name != 0 {
                let at = names.checked_add(usize::try_from(name).ok()?)?;
                self.imports.insert(file.text(at)?);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_program_is_dynamic_and_wants_what_it_calls() {
        let elf = Elf::read(&own()).unwrap();
        assert!(elf.loader.is_some_and(|loader| loader.contains("ld-linux")));
        assert!(elf.imports.contains("read") && !elf.is_go);
    }

    #[test]
    fn what_is_cut_or_turned_is_refused_or_read_but_never_a_panic() {
        let whole = own();
        for len in [0, 5, 6, 63, 64, 1_000] {
            assert_eq!(Elf::read(&whole[..len]), None);
        }
        // Every bit of the header, and of what the header names.
        let mut head = whole[..whole.len().min(1 << 20)].to_vec();
        for bit in 0..8 * 2_048 {
            head[bit / 8] ^= 1 << (bit % 8);
            let _whatever_it_is = Elf::read(&head);
            head[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Elf::read(b"#!/bin/sh\necho\n"), None);
    }
}
