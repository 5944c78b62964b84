//! `struct msghdr`.

use super::iovec::Buffers;
use super::memory::UserPtr;
use core::mem::offset_of;
use janus_posix::Errno;
use libc::msghdr;

/// A message as the caller describes it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    at: UserPtr,
    pub(crate) name: UserPtr,
    pub(crate) name_len: u32,
    pub(crate) buffers: Buffers,
    pub(crate) control: UserPtr,
    pub(crate) control_len: usize,
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from_ne_bytes(
        *bytes[at..]
            .first_chunk()
            .unwrap_or(&[0; size_of::<usize>()]),
    )
}

impl Message {
    pub(crate) fn read(at: UserPtr) -> Result<Message, Errno> {
        let bytes = at.bytes(size_of::<msghdr>())?;
        let pointer = |offset| {
            // SAFETY: the caller gave the message away, and with it what it names.
            unsafe { UserPtr::from_address(word(&bytes, offset)) }
        };
        let name_len = &bytes[offset_of!(msghdr, msg_namelen)..];
        let name_len = u32::from_ne_bytes(*name_len.first_chunk().unwrap_or(&[0; 4]));
        let count = word(&bytes, offset_of!(msghdr, msg_iovlen));
        // The kernel's error here differs from that of `readv` (copy_msghdr_from_user).
        if count > super::iovec::IOV_MAX {
            return Err(Errno::EMSGSIZE);
        }
        Ok(Message {
            at,
            name: pointer(offset_of!(msghdr, msg_name)),
            name_len,
            buffers: Buffers::read(pointer(offset_of!(msghdr, msg_iov)), count)?,
            control: pointer(offset_of!(msghdr, msg_control)),
            control_len: word(&bytes, offset_of!(msghdr, msg_controllen)),
        })
    }

    /// The control bytes to send.
    pub(crate) fn control(&self) -> Result<Vec<u8>, Errno> {
        /// `net.core.optmem_max`.
        const CONTROL_MAX: usize = 131_072;
        if self.control_len > CONTROL_MAX {
            return Err(Errno::ENOBUFS);
        }
        self.control.bytes(self.control_len)
    }

    /// Writes the control data and flags of a received message. A stream has no sender's name to give.
    pub(crate) fn finish(&self, control: &[u8], flags: i32) -> Result<(), Errno> {
        self.control.write(control)?;
        let field = |offset| self.at.offset(offset);
        field(offset_of!(msghdr, msg_controllen)).write(&control.len().to_ne_bytes())?;
        field(offset_of!(msghdr, msg_namelen)).write(&0_u32.to_ne_bytes())?;
        field(offset_of!(msghdr, msg_flags)).write(&flags.to_ne_bytes())
    }
}
