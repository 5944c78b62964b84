//! The words of an expression, with their places. Knows no meaning but that of the signs for `and`, `or` and `not`.

/// One piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    And,
    Or,
    Not,
    Word(&'a str),
}

/// A piece and where it begins.
pub(super) type Placed<'a> = (usize, Token<'a>);

/// All pieces of `text`, or the place of what is none.
pub(super) fn tokens(text: &str) -> Result<Vec<Placed<'_>>, (usize, String)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (len, token) = match byte {
            _ if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'(' => (1, Token::Open),
            b')' => (1, Token::Close),
            b'!' => (1, Token::Not),
            b'&' if bytes.get(at + 1) == Some(&b'&') => (2, Token::And),
            b'|' if bytes.get(at + 1) == Some(&b'|') => (2, Token::Or),
            _ if is_word(byte) => {
                let rest = &bytes[at..];
                let len = rest.iter().position(|byte| !is_word(*byte));
                let len = len.unwrap_or(rest.len());
                (len, word(&text[at..at + len]))
            }
            _ => {
                let sign = text[at..].chars().next().unwrap_or('?');
                return Err((at, format!("`{sign}` has no meaning here")));
            }
        };
        found.push((at, token));
        at += len;
    }
    Ok(found)
}

/// Whether words, numbers, addresses and prefixes may contain `byte`: ASCII only, so that words begin and end between characters.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'/' | b'-' | b'_')
}

fn word(text: &str) -> Token<'_> {
    match text {
        "and" => Token::And,
        "or" => Token::Or,
        "not" => Token::Not,
        _ => Token::Word(text),
    }
}
