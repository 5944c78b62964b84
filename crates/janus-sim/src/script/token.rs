//! Characters to tokens, each with its place. Longest match decides, so `0...0.2` is a number, three dots and a number.
//! What never lives here: grammar, except that of an option line's value, which ends with the blank after it.

use super::ScriptError;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// A run of digits, with its value.
    Int(i64),
    /// A decimal fraction, in millionths: exact, since times are compared.
    Fraction(i64),
    /// `0x..`.
    Hex(i64),
    Word(String),
    Text(Vec<u8>),
    /// `--name`, `--name=value`.
    Option(String, Option<String>),
    Ellipsis,
    Symbol(char),
}

impl Token {
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Int(number) => format!("`{number}`"),
            Token::Fraction(millionths) => format!("`{}`", *millionths as f64 / 1e6),
            Token::Hex(number) => format!("`{number:#x}`"),
            Token::Word(word) => format!("`{word}`"),
            Token::Text(text) => format!("\"{}\"", text.escape_ascii()),
            Token::Option(name, _) => format!("`--{name}`"),
            Token::Ellipsis => "`...`".into(),
            Token::Symbol(symbol) => format!("`{symbol}`"),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Spanned {
    pub(super) token: Token,
    pub(super) line: u32,
    pub(super) column: u32,
    /// As it stands in the script: `0012` and `12` are different cookies.
    pub(super) text: String,
}

pub(super) fn tokens(text: &str) -> Result<Vec<Spanned>, ScriptError> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        column: 1,
    };
    let mut out = Vec::new();
    while lexer.skip_blank()? {
        let (line, column, before) = (lexer.line, lexer.column, lexer.rest);
        let token = lexer.token()?;
        let text = before[..before.len() - lexer.rest.len()].to_owned();
        out.push(Spanned {
            token,
            line,
            column,
            text,
        });
    }
    Ok(out)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Length of the leading run of bytes that satisfy `test`.
fn run(text: &str, test: impl Fn(u8) -> bool) -> usize {
    text.bytes()
        .position(|byte| !test(byte))
        .unwrap_or(text.len())
}

impl<'a> Lexer<'a> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T, ScriptError> {
        Err(ScriptError {
            line: self.line,
            column: self.column,
            message: message.into(),
        })
    }

    /// Takes `len` bytes and counts the lines in them.
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        match taken.rfind('\n') {
            Some(last) => {
                self.line += taken.bytes().filter(|byte| *byte == b'\n').count() as u32;
                self.column = taken[last..].chars().count() as u32;
            }
            None => self.column += taken.chars().count() as u32,
        }
        self.rest = rest;
        taken
    }

    /// Skips white space and comments; false at the end of the text.
    fn skip_blank(&mut self) -> Result<bool, ScriptError> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            if self.rest.starts_with("//") {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                let Some(end) = self.rest.find("*/") else {
                    return self.error("a comment opened with `/*` is never closed");
                };
                self.take(end + 2);
            } else {
                return Ok(!self.rest.is_empty());
            }
        }
    }

    fn token(&mut self) -> Result<Token, ScriptError> {
        if self.rest.starts_with("%{") {
            return self.error(
                "code in `%{ }%` is not run: it is Python that reads a kernel's TCP_INFO; leave it out, or say what it \
                 checks by the packets that show it, or by `getsockopt(4, SOL_TCP, TCP_.., [value], [4]) = 0`",
            );
        }
        if self.rest.starts_with('`') {
            return self.error(
                "a shell command is not run: it would set up a kernel, and there is none; give settings in a line at the \
                 top, such as `--so_flags=\"tcp_sack=0,tcp_ecn=1\"`, and leave out the rest",
            );
        }
        if self.rest.starts_with("...") {
            self.take(3);
            return Ok(Token::Ellipsis);
        }
        if let Some(name) = self.rest.strip_prefix("--") {
            let len = run(name, is_word);
            if len > 0 {
                let name = self.take(2 + len)[2..].to_owned();
                let value = self.option_value()?;
                return Ok(Token::Option(name, value));
            }
        }
        if self.rest.starts_with('"') {
            return self.text();
        }
        if let Some(number) = self.number()? {
            return Ok(number);
        }
        let len = run(self.rest, is_word);
        if len > 0 {
            return Ok(Token::Word(self.take(len).to_owned()));
        }
        let symbol = self.rest.chars().next().unwrap_or(' ');
        self.take(symbol.len_utf8());
        Ok(Token::Symbol(symbol))
    }

    /// `=value` behind an option's name: a quoted text, a word or number or address, or `SYMBOL=` and one of these.
    fn option_value(&mut self) -> Result<Option<String>, ScriptError> {
        let Some(value) = self.rest.strip_prefix('=') else {
            return Ok(None);
        };
        let mut len = 0;
        let mut quote = None;
        for c in value.chars() {
            match quote {
                Some(open) if c == open => quote = None,
                None if c == '"' || c == '`' => quote = Some(c),
                None if c.is_whitespace() => break,
                _ => {}
            }
            len += c.len_utf8();
        }
        if quote.is_some() {
            return self.error("a quoted value is never closed");
        }
        let value = &value[..len];
        let bare = value.split(['"', '`']).step_by(2).any(|part| {
            let known = |c: char| c.is_ascii_alphanumeric() || "_=.:-".contains(c);
            !part.chars().all(known)
        });
        if value.is_empty() || bare {
            return self.error(format!(
                "expected a value after `=`, found `{value}`; a value of several words or with commas stands in quotes: \
                 `--so_flags=\"tcp_sack=0,tcp_ecn=1\"`"
            ));
        }
        let unquoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let value = unquoted.unwrap_or(value).to_owned();
        self.take(1 + len);
        Ok(Some(value))
    }

    /// A number, or nothing: digits that run on into letters are a word.
    fn number(&mut self) -> Result<Option<Token>, ScriptError> {
        let negative = self.rest.starts_with('-');
        let body = &self.rest[usize::from(negative)..];
        let whole = run(body, |byte| byte.is_ascii_digit());
        let fraction = match body[whole..].strip_prefix('.') {
            Some(after) => run(after, |byte| byte.is_ascii_digit()),
            None => 0,
        };
        let sign = if negative { -1 } else { 1 };
        if fraction > 0 {
            let token =
                self.fraction(&body[..whole], &body[whole + 1..whole + 1 + fraction], sign)?;
            self.take(usize::from(negative) + whole + 1 + fraction);
            return Ok(Some(token));
        }
        let word = run(body, is_word);
        if !negative && whole == 1 && body.starts_with("0x") && word > 2 {
            return match i64::from_str_radix(&body[2..word], 16) {
                Ok(value) => {
                    self.take(word);
                    Ok(Some(Token::Hex(value)))
                }
                Err(_) => self.error(format!("`{}` is not a hexadecimal number", &body[..word])),
            };
        }
        if whole == 0 || word > whole {
            return Ok(None);
        }
        match body[..whole].parse::<i64>() {
            Ok(value) => {
                self.take(usize::from(negative) + whole);
                Ok(Some(Token::Int(sign * value)))
            }
            Err(_) => self.error(format!("`{}` is too large a number", &body[..whole])),
        }
    }

    fn fraction(&self, whole: &str, digits: &str, sign: i64) -> Result<Token, ScriptError> {
        let padded = format!("{digits:0<6}");
        let value = match (if whole.is_empty() { "0" } else { whole }).parse::<i64>() {
            Ok(whole) if whole < 1 << 40 => {
                whole * 1_000_000 + padded[..6].parse::<i64>().unwrap_or(0)
            }
            _ => return self.error(format!("`{whole}.{digits}` is too large a number")),
        };
        Ok(Token::Fraction(sign * value))
    }

    /// A quoted string with C's escapes.
    fn text(&mut self) -> Result<Token, ScriptError> {
        let mut bytes = Vec::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.take(at + 1);
                    return Ok(Token::Text(bytes));
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => bytes.push(b'\n'),
                    Some((_, 'r')) => bytes.push(b'\r'),
                    Some((_, 't')) => bytes.push(b'\t'),
                    Some((_, '0')) => bytes.push(0),
                    Some((_, quoted @ ('"' | '\\'))) => bytes.push(quoted as u8),
                    Some((_, 'x')) => {
                        let hex: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                        match u8::from_str_radix(&hex, 16) {
                            Ok(byte) => bytes.push(byte),
                            Err(_) => {
                                return self
                                    .error(format!("`\\x{hex}` is not two hexadecimal digits"));
                            }
                        }
                    }
                    _ => {
                        return self.error(
                            "an escape in a string is none of \\n \\r \\t \\0 \\\" \\\\ \\xNN",
                        );
                    }
                },
                _ => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.error("a string is never closed")
    }
}
