//! The pcapng format (draft-ietf-opsawg-pcapng), as much of it as a packet trace needs: one section, interfaces with
//! nanosecond time stamps, enhanced packet blocks with a direction. Knows no clock and no file.

use std::io::{self, Write};

use crate::debug::opaque;

use janus_wire::Link;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// Packets that begin with their IP header.
const LINKTYPE_RAW: u16 = 101;
const OPT_IF_NAME: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;
const OPT_EPB_FLAGS: u16 = 2;

/// Which way a frame went, seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It came in.
    Received,
    /// It went out.
    Sent,
}

/// Writes one section.
pub struct Writer<W> {
    out: W,
    interfaces: u32,
    block: Vec<u8>,
}

opaque!([W] Writer<W>);

impl<W: Write> Writer<W> {
    /// Begins a section.
    pub fn new(mut out: W) -> io::Result<Self> {
        let mut block = Vec::with_capacity(4096);
        begin(&mut block, SECTION);
        block.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        block.extend_from_slice(&1u16.to_le_bytes());
        block.extend_from_slice(&0u16.to_le_bytes());
        // The section's length: not known.
        block.extend_from_slice(&u64::MAX.to_le_bytes());
        end(&mut out, &mut block)?;
        Ok(Self {
            out,
            interfaces: 0,
            block,
        })
    }

    /// Describes one more interface and gives its number.
    pub fn interface(&mut self, link: Link, name: &str) -> io::Result<u32> {
        let link_type = match link {
            Link::Ethernet => LINKTYPE_ETHERNET,
            Link::Ip => LINKTYPE_RAW,
        };
        begin(&mut self.block, INTERFACE);
        self.block.extend_from_slice(&link_type.to_le_bytes());
        self.block.extend_from_slice(&0u16.to_le_bytes());
        // No limit to the length of packets.
        self.block.extend_from_slice(&0u32.to_le_bytes());
        self.option(OPT_IF_NAME, name.as_bytes());
        // Units of 10^-9 s.
        self.option(OPT_IF_TSRESOL, &[9]);
        self.option(0, &[]);
        end(&mut self.out, &mut self.block)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a frame of `interface`, seen `nanos` after the clock's beginning.
    pub fn frame(
        &mut self,
        interface: u32,
        nanos: u64,
        flow: Flow,
        bytes: &[u8],
    ) -> io::Result<()> {
        debug_assert!(
            interface < self.interfaces,
            "frames belong to an interface described before"
        );
        let len = (bytes.len() as u32).to_le_bytes();
        begin(&mut self.block, PACKET);
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.block
            .extend_from_slice(&((nanos >> 32) as u32).to_le_bytes());
        self.block.extend_from_slice(&(nanos as u32).to_le_bytes());
        self.block.extend_from_slice(&len);
        self.block.extend_from_slice(&len);
        self.block.extend_from_slice(bytes);
        self.pad();
        let flags: u32 = match flow {
            Flow::Received => 1,
            Flow::Sent => 2,
        };
        self.option(OPT_EPB_FLAGS, &flags.to_le_bytes());
        self.option(0, &[]);
        end(&mut self.out, &mut self.block)
    }

    /// Hands everything on.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the writing and gives the sink back.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block
            .extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}

/// Begins a block in `block`: its type, and the place of its length.
fn begin(block: &mut Vec<u8>, kind: u32) {
    block.clear();
    block.extend_from_slice(&kind.to_le_bytes());
    block.extend_from_slice(&[0; 4]);
}

/// Ends the block with its length, which stands in two places, and hands it on by one call: a sink that takes whole calls or
/// nothing of them, as a buffered one does while its device is full, never has a part of a block.
fn end(out: &mut impl Write, block: &mut Vec<u8>) -> io::Result<()> {
    let total = (block.len() as u32 + 4).to_le_bytes();
    block[4..8].copy_from_slice(&total);
    block.extend_from_slice(&total);
    out.write_all(block)
}
