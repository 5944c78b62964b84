//! A request as a handler gets it: a view of the head where it was received, and the body to be read.

use crate::body::Body;
use crate::head::HeadIndex;
use crate::transport::Transport;

/// One request.
pub struct Request<'a, S: Transport> {
    bytes: &'a [u8],
    index: &'a HeadIndex,
    body: Body<'a, S>,
}

impl<'a, S: Transport> Request<'a, S> {
    pub(crate) fn new(bytes: &'a [u8], index: &'a HeadIndex, body: Body<'a, S>) -> Self {
        Self { bytes, index, body }
    }

    /// Returns the method, as it was written: methods are case-sensitive.
    #[inline]
    pub fn method(&self) -> &'a str {
        self.index.method(self.bytes)
    }

    /// Returns the target, as it was written.
    #[inline]
    pub fn target(&self) -> &'a str {
        self.index.target(self.bytes)
    }

    /// Returns the path of the target, neither decoded nor normalized; `*` for the whole server.
    pub fn path(&self) -> &'a str {
        let origin = origin_form(self.target());
        origin.split_once('?').map_or(origin, |(path, _)| path)
    }

    /// Returns the query: the part after the first `?` of the target.
    pub fn query(&self) -> Option<&'a str> {
        self.target().split_once('?').map(|(_, query)| query)
    }

    /// Returns the minor version of HTTP/1: 0 or 1.
    #[inline]
    pub fn minor_version(&self) -> u8 {
        self.index.minor()
    }

    /// Returns the first value of the header `name`, compared without case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.index.header(self.bytes, name)
    }

    /// Returns names and values in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.index.headers(self.bytes)
    }

    /// Returns the body. A client that waits for 100 gets it when the body is first read.
    #[inline]
    pub fn body(&mut self) -> &mut Body<'a, S> {
        &mut self.body
    }
}

/// Strips scheme and authority from the absolute form that proxies get (RFC 9112 section 3.2.2).
fn origin_form(target: &str) -> &str {
    if target.starts_with('/') {
        return target;
    }
    let Some((_, rest)) = target.split_once("://") else {
        return target;
    };
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => &rest[at..],
        _ => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::origin_form;

    #[test]
    fn every_form_has_a_path() {
        assert_eq!(origin_form("/a?b"), "/a?b");
        assert_eq!(origin_form("http://example.org/a?b"), "/a?b");
        assert_eq!(origin_form("http://example.org"), "/");
        assert_eq!(origin_form("http://example.org?b=/"), "/");
        assert_eq!(origin_form("*"), "*");
    }
}
