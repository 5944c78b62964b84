//! The grammar's frame: options, then events, each a time and an action. Packets and calls have files of their own.

use super::token::{Spanned, Token, tokens};
use super::{Action, EVENTS_MAX, Event, Script, ScriptError, Settings, When};

/// The longest time a script can name.
const TIME_MAX_MICROS: u64 = 1_000_000_000_000;

pub(super) type Result<T> = std::result::Result<T, ScriptError>;

pub(super) fn script(text: &str) -> Result<Script> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        v6: false,
    };
    let mut settings = Settings::default();
    while let Some(Token::Option(name, value)) = parser.peek().cloned() {
        if let Err(message) = settings.set(&name, value.as_deref()) {
            return parser.error(message);
        }
        parser.at += 1;
    }
    parser.v6 = settings.local_ip.is_ipv6();
    parser.substitute(&settings);
    let mut events = Vec::new();
    while parser.peek().is_some() {
        if events.len() == EVENTS_MAX {
            return parser.error(format!("more than {EVENTS_MAX} events"));
        }
        events.push(parser.event()?);
    }
    check_order(&events)?;
    Ok(Script { settings, events })
}

/// A number as C writes it, decimal or `0x`.
fn integer(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The first event sets the origin of time; absolute times never run backwards.
fn check_order(events: &[Event]) -> Result<()> {
    let Some(first) = events.first() else {
        return Err(ScriptError {
            line: 1,
            column: 1,
            message: "the script has no events".into(),
        });
    };
    if !matches!(first.when, When::Absolute(0) | When::Relative(0)) {
        return Err(ScriptError {
            line: first.line,
            column: 1,
            message: "the first event must be at time 0".into(),
        });
    }
    for pair in events.windows(2) {
        if let (When::Absolute(before), When::Absolute(after)) = (pair[0].when, pair[1].when)
            && after < before
        {
            let message = format!(
                "time runs backwards, from {} to {}",
                pair[0].when, pair[1].when
            );
            return Err(ScriptError {
                line: pair[1].line,
                column: 1,
                message,
            });
        }
    }
    Ok(())
}

pub(super) struct Parser {
    tokens: Vec<Spanned>,
    at: usize,
    /// The script is over IPv6.
    pub(super) v6: bool,
}

impl Parser {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<&Token> {
        self.tokens
            .get(self.at + ahead)
            .map(|spanned| &spanned.token)
    }

    pub(super) fn line(&self) -> u32 {
        self.place().0
    }

    /// Line and column of the next token; at the end, where the last one ends.
    fn place(&self) -> (u32, u32) {
        match (self.tokens.get(self.at), self.tokens.last()) {
            (Some(next), _) => (next.line, next.column),
            (None, Some(last)) => (last.line, last.column + last.text.chars().count() as u32),
            (None, None) => (1, 1),
        }
    }

    /// The next token as it stands in the script.
    pub(super) fn text(&self) -> Option<&str> {
        self.tokens
            .get(self.at)
            .map(|spanned| spanned.text.as_str())
    }

    pub(super) fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ScriptError {
            line: self.place().0,
            column: self.place().1,
            message: message.into(),
        })
    }

    /// The error for a token that does not fit.
    pub(super) fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let found = self
            .peek()
            .map_or("the end of the script".to_owned(), Token::describe);
        self.error(format!("expected {wanted}, found {found}"))
    }

    pub(super) fn take_symbol(&mut self, symbol: char) -> bool {
        let here = self.peek() == Some(&Token::Symbol(symbol));
        self.at += usize::from(here);
        here
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let here = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(here);
        here
    }

    pub(super) fn symbol(&mut self, symbol: char) -> Result<()> {
        if self.take_symbol(symbol) {
            Ok(())
        } else {
            self.unexpected(&format!("`{symbol}`"))
        }
    }

    /// A non-negative number up to `max`.
    pub(super) fn number(&mut self, what: &str, max: u32) -> Result<u32> {
        match self.peek() {
            Some(Token::Int(value) | Token::Hex(value)) => match u32::try_from(*value) {
                Ok(value) if value <= max => {
                    self.at += 1;
                    Ok(value)
                }
                _ => self.error(format!("{what} {value} is out of range (0 to {max})")),
            },
            _ => self.unexpected(what),
        }
    }

    /// Puts the values of `--define` symbols where their names stand.
    fn substitute(&mut self, settings: &Settings) {
        for spanned in &mut self.tokens[self.at..] {
            if let Token::Word(word) = &spanned.token
                && let Some(value) = settings.defines.get(word)
            {
                let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                spanned.token = match (quoted, integer(value)) {
                    (Some(text), _) => Token::Text(text.into()),
                    (None, Some(number)) => Token::Int(number),
                    (None, None) => Token::Word(value.clone()),
                };
                spanned.text.clone_from(value);
            }
        }
    }

    fn event(&mut self) -> Result<Event> {
        let line = self.line();
        let when = self.when()?;
        let end = match self.peek() {
            Some(Token::Ellipsis) => {
                self.at += 1;
                Some(self.time()?)
            }
            _ => None,
        };
        let action = match self.peek() {
            Some(Token::Symbol('<')) if end.is_none() => {
                self.at += 1;
                self.packet_line(true)?
            }
            Some(Token::Symbol('>')) if end.is_none() => {
                self.at += 1;
                self.packet_line(false)?
            }
            Some(Token::Word(_)) => Action::Call(self.call(end)?),
            _ => return self.unexpected("`<`, `>` or a system call after the time"),
        };
        let loose = matches!(
            when,
            When::Any | When::AbsoluteRange(..) | When::RelativeRange(..)
        );
        let outbound = matches!(action, Action::Outbound(_) | Action::OutboundIcmp(_));
        if loose && !outbound {
            let message = format!("the time `{when}` is for outbound packets only");
            return Err(ScriptError {
                line,
                column: 1,
                message,
            });
        }
        Ok(Event { line, when, action })
    }

    fn when(&mut self) -> Result<When> {
        if self.take_symbol('*') {
            return Ok(When::Any);
        }
        let relative = self.take_symbol('+');
        let from = self.time()?;
        if !self.take_symbol('~') {
            return Ok(if relative {
                When::Relative(from)
            } else {
                When::Absolute(from)
            });
        }
        if relative {
            self.symbol('+')?;
        }
        let to = self.time()?;
        if to < from {
            return self.error("a time range that runs backwards");
        }
        Ok(if relative {
            When::RelativeRange(from, to)
        } else {
            When::AbsoluteRange(from, to)
        })
    }

    /// Seconds, to microseconds.
    fn time(&mut self) -> Result<u64> {
        let micros = match self.peek() {
            Some(Token::Int(seconds)) => seconds.checked_mul(1_000_000),
            Some(Token::Fraction(millionths)) => Some(*millionths),
            _ => return self.unexpected("the time of an event"),
        };
        match micros.map(u64::try_from) {
            Some(Ok(micros)) if micros <= TIME_MAX_MICROS => {
                self.at += 1;
                Ok(micros)
            }
            _ => self.error("a time that is negative or beyond a million seconds"),
        }
    }
}
