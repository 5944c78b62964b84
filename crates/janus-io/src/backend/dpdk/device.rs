//! A DPDK device from its name until it is removed: one owner in a process. Sets nothing up.

use std::ffi::CString;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use janus_dpdk_sys::{Error, check, ffi};

use super::port::explain;

/// The numbers of the devices that this process has open. DPDK gives a number to the next device as soon as it is free:
/// so who adds or removes one holds this all the while.
static OPEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<u16>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device, removed when dropped.
pub(super) struct Device {
    id: u16,
    here: bool,
}

impl Device {
    /// The device of a name, which is made if it is not there, for whoever asks first. DPDK runs.
    pub(super) fn find(name: &str) -> io::Result<(Device, ffi::jd_port_info)> {
        let word = |text: &str| CString::new(text).map_err(io::Error::other);
        let explained = |error: Error| explain(name, &error);
        let short = word(name.split(',').next().unwrap_or(name))?;
        let mut open = open();
        let mut id = 0;
        // SAFETY: DPDK runs; zero-terminated names, and a place that can be written.
        unsafe {
            if check(ffi::jd_port_by_name(short.as_ptr(), &raw mut id)).is_err() {
                check(ffi::jd_device_add(word(name)?.as_ptr())).map_err(explained)?;
                check(ffi::jd_port_by_name(short.as_ptr(), &raw mut id)).map_err(explained)?;
            }
        }
        if open.contains(&id) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("the DPDK device {name} is open in this process already"),
            ));
        }
        open.push(id);
        drop(open);
        let device = Device { id, here: true };
        let mut info = ffi::jd_port_info::default();
        // SAFETY: DPDK runs and `info` can be written.
        check(unsafe { ffi::jd_port_info(id, &raw mut info) }).map_err(explained)?;
        Ok((device, info))
    }

    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// Removes it; an error if its driver would not let go. No core polls it any more.
    pub(super) fn remove(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.here) {
            return Ok(());
        }
        let mut open = open();
        // SAFETY: DPDK runs, and the device is this owner's.
        let removed = check(unsafe { ffi::jd_device_remove(self.id) });
        open.retain(|id| *id != self.id);
        removed.map(drop)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // An answer is for the caller of `remove`.
        let _ = self.remove();
    }
}
