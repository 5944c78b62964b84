//! System-call lines: `accept(3, ..., ...) = -1 EAGAIN (Resource temporarily unavailable)`.

use super::parse::{Parser, Result};
use super::token::Token;
use super::{Call, Expr};
use std::net::{IpAddr, SocketAddr};

/// How deep lists and structures may nest.
const NESTING_MAX: u32 = 8;

impl Parser {
    /// A call whose name is the next token.
    pub(super) fn call(&mut self, end: Option<u64>) -> Result<Call> {
        let Some(Token::Word(name)) = self.next() else {
            return self.unexpected("a system call");
        };
        self.symbol('(')?;
        let mut arguments = Vec::new();
        if !self.take_symbol(')') {
            arguments = self.expressions(')', NESTING_MAX)?;
        }
        self.symbol('=')?;
        let result = self.expression(NESTING_MAX)?;
        let errno = match self.peek().cloned() {
            Some(Token::Word(word)) if word.starts_with('E') => {
                self.next();
                if self.peek() != Some(&Token::Symbol('(')) {
                    return self.unexpected(
                        "the errno's text in parentheses, such as `(Bad file descriptor)`",
                    );
                }
                Some(word)
            }
            _ => None,
        };
        self.note()?;
        Ok(Call {
            name,
            arguments,
            end,
            result,
            errno,
        })
    }

    /// The human-readable text of an errno, in parentheses; read and dropped.
    fn note(&mut self) -> Result<()> {
        if self.take_symbol('(') {
            while !self.take_symbol(')') {
                if self.next().is_none() {
                    return self.unexpected("`)`");
                }
            }
        }
        Ok(())
    }

    fn expressions(&mut self, close: char, nesting: u32) -> Result<Vec<Expr>> {
        let mut items = vec![self.expression(nesting)?];
        while self.take_symbol(',') {
            items.push(self.expression(nesting)?);
        }
        self.symbol(close)?;
        Ok(items)
    }

    fn expression(&mut self, nesting: u32) -> Result<Expr> {
        let mut left = self.operand(nesting)?;
        while self.take_symbol('|') {
            left = Expr::Or(Box::new(left), Box::new(self.operand(nesting)?));
        }
        Ok(left)
    }

    fn operand(&mut self, nesting: u32) -> Result<Expr> {
        if nesting == 0 {
            return self.error("lists nested too deeply");
        }
        let Some(token) = self.peek().cloned() else {
            return self.unexpected("a value");
        };
        match token {
            Token::Symbol('{') => {
                self.next();
                self.structure(nesting - 1)
            }
            Token::Symbol('[') => {
                self.next();
                if self.take_symbol(']') {
                    return Ok(Expr::List(Vec::new()));
                }
                Ok(Expr::List(self.expressions(']', nesting - 1)?))
            }
            Token::Ellipsis => self.just(Expr::Ellipsis),
            Token::Int(number) | Token::Hex(number) => self.just(Expr::Int(number)),
            Token::Text(mut text) => {
                self.next();
                while let Some(Token::Text(more)) = self.peek().cloned() {
                    text.extend(more);
                    self.next();
                }
                // `"abc"...`: what follows is not shown.
                if self.peek() == Some(&Token::Ellipsis) {
                    self.next();
                }
                Ok(Expr::Bytes(text))
            }
            Token::Word(word) if self.peek_at(1) == Some(&Token::Symbol('(')) => {
                self.function(&word)
            }
            Token::Word(word) => self.just(Expr::Word(word)),
            _ => self.unexpected("a value"),
        }
    }

    fn just(&mut self, expr: Expr) -> Result<Expr> {
        self.next();
        Ok(expr)
    }

    /// `htons(80)` and `inet_addr("..")` keep host order here; the address below puts them together.
    fn function(&mut self, name: &str) -> Result<Expr> {
        match name {
            "htons" | "inet_addr" | "inet6_addr" => {
                self.next();
                self.symbol('(')?;
                let value = self.operand(1)?;
                self.symbol(')')?;
                Ok(value)
            }
            _ => self.error(format!("`{name}(..)` is not a value known here")),
        }
    }

    /// After `{`: fields with names, or values without. A message header's fields have their length in parentheses,
    /// `msg_iov(2)=[..]`, which becomes a field `msg_iovlen` of its own.
    fn structure(&mut self, nesting: u32) -> Result<Expr> {
        let mut fields = Vec::new();
        loop {
            let name = match (self.peek().cloned(), self.peek_at(1)) {
                (Some(Token::Word(name)), Some(Token::Symbol('='))) => {
                    self.next();
                    self.next();
                    name
                }
                (Some(Token::Word(name)), _) if name == "msg_name" || name == "msg_iov" => {
                    self.next();
                    self.symbol('(')?;
                    fields.push((format!("{name}len"), self.expression(nesting)?));
                    self.symbol(')')?;
                    self.symbol('=')?;
                    name
                }
                _ => String::new(),
            };
            fields.push((name, self.expression(nesting)?));
            if !self.take_symbol(',') {
                break;
            }
        }
        self.symbol('}')?;
        if fields.first().is_some_and(|(name, _)| name == "sa_family") {
            return self.address(&fields);
        }
        Ok(Expr::Struct(fields))
    }

    fn address(&self, fields: &[(String, Expr)]) -> Result<Expr> {
        let field = |wanted: &str| {
            fields
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, value)| value)
        };
        let v6 = match field("sa_family") {
            Some(Expr::Word(family)) if family == "AF_INET" => false,
            Some(Expr::Word(family)) if family == "AF_INET6" => true,
            _ => return self.error("an address is of the family AF_INET or AF_INET6"),
        };
        let address = match field("sin_addr") {
            Some(Expr::Bytes(text)) => String::from_utf8_lossy(text).parse::<IpAddr>().ok(),
            _ => None,
        };
        let address = address.filter(|address| address.is_ipv6() == v6);
        let port = match field("sin_port") {
            Some(Expr::Int(port)) => u16::try_from(*port).ok(),
            _ => None,
        };
        match (address, port) {
            (Some(address), Some(port)) => Ok(Expr::Address(SocketAddr::new(address, port))),
            _ => self.error("an address reads {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr(\"192.0.2.1\")}"),
        }
    }
}
