//! The DPDK device of a configuration. Without the features `dpdk` and `dpdk-dlopen` there is none, and that is said.

use std::sync::Arc;

use janus_io::Backend;
use janus_mem::Depot;

use super::device::Device;
use crate::config::Settings;
use crate::runtime::BoxError;

/// Error of a configuration without a device.
pub(super) const NO_DEVICE: &str = "`backend = \"dpdk\"` wants a device in `dpdk_device`: a virtual one with its arguments \
     (net_tap0,iface=jt0) or a place on a bus (0000:03:00.0)";

#[cfg(feature = "_dpdk")]
pub(super) fn open(
    settings: &Settings,
    device: &str,
    depot: &Arc<Depot>,
    steering_key: &[u8; 40],
    open: impl FnOnce(Box<dyn Backend>) -> Result<Device, BoxError>,
) -> Result<Device, BoxError> {
    use janus_io::dpdk::{Dpdk, SLEEP};
    use janus_io::exception::ExceptionBackend;

    let backend = Dpdk::new(device, depot.clone())
        .with_eal(settings.dpdk_eal.iter().cloned())
        .with_hash_key(*steering_key)
        .with_sleep(settings.dpdk_sleep.unwrap_or(SLEEP));
    // A device that fills in checksums would make good again what is spoilt on the way.
    let backend = match settings.faults.corrupts() {
        true => backend.without_offloads(),
        false => backend,
    };
    let facts = backend.facts();
    let mut backend: Box<dyn Backend> = Box::new(backend);
    let mut taken = None;
    if let Some(interface) = &settings.dpdk_exception {
        let ours = super::device::addresses(settings);
        let ours = ours.into_iter().map(|own| own.addr);
        let mut exception = ExceptionBackend::new(backend, interface, ours);
        if settings.address.dhcp {
            exception = exception.asking();
            taken = Some(exception.ours());
        }
        backend = Box::new(exception);
    }
    let device = Device {
        taken,
        ..open(backend)?
    };
    if facts.get().is_some_and(|facts| facts.without_huge_pages) {
        eprintln!(
            "janus: DPDK runs without huge pages, because none are free: `sudo sysctl -w vm.nr_hugepages=512` reserves 1 GiB"
        );
    }
    Ok(device)
}

#[cfg(not(feature = "_dpdk"))]
pub(super) fn open(
    settings: &Settings,
    device: &str,
    _: &Arc<Depot>,
    _: &[u8; 40],
    _: impl FnOnce(Box<dyn Backend>) -> Result<Device, BoxError>,
) -> Result<Device, BoxError> {
    // What was said for it is understood all the same.
    let _ = (
        &settings.dpdk_eal,
        &settings.dpdk_exception,
        settings.dpdk_sleep,
    );
    Err(format!(
        "this program has no DPDK in it to open {device}: build it with the feature `dpdk` of janus-rt (needs libdpdk-dev), or \
         with `dpdk-dlopen`, which loads DPDK where it runs"
    )
    .into())
}
