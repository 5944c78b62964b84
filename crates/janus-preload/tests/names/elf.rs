//! Names that a library gives to others: its table of dynamic symbols. 64-bit little-endian ELF.

use std::collections::BTreeSet;

const DYNAMIC_SYMBOLS: u32 = 11;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
/// Bindings of symbols that others can use.
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;

fn number<const N: usize>(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..)?.first_chunk::<N>()?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

fn text(file: &[u8], at: usize) -> Option<String> {
    let rest = file.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

/// Names that are defined; `None`: it is no such file.
pub(crate) fn exports(file: &[u8]) -> Option<BTreeSet<String>> {
    if !file.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]) {
        return None;
    }
    let (table, count) = (number::<8>(file, 40)?, number::<2>(file, 60)?);
    let section = |at: usize| table + at * SECTION;
    let mut names = BTreeSet::new();
    for at in (0..count).map(section) {
        if number::<4>(file, at + 4)? as u32 != DYNAMIC_SYMBOLS {
            continue;
        }
        let (first, len) = (number::<8>(file, at + 24)?, number::<8>(file, at + 32)?);
        let texts = number::<8>(file, section(number::<4>(file, at + 40)?) + 24)?;
        for symbol in (0..len / SYMBOL).map(|at| first + at * SYMBOL) {
            let (name, defined) = (
                number::<4>(file, symbol)?,
                number::<2>(file, symbol + 6)? != 0,
            );
            let binding = *file.get(symbol + 4)? >> 4;
            if defined && [GLOBAL, WEAK].contains(&binding) {
                names.insert(text(file, texts + name)?);
            }
        }
    }
    Some(names)
}
