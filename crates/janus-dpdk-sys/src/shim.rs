//! How the shim is reached: linked into the program, or loaded when it is asked for, so that one program serves machines
//! with and without DPDK. The declarations are `ffi.rs`, once for both ways.

/// Declares the shim's functions. Linked, they are plain foreign functions.
#[cfg(feature = "dpdk")]
macro_rules! declare {
    ($($(#[$doc:meta])* pub fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        unsafe extern "C" {
            $($(#[$doc])* pub fn $name($($arg: $ty),*) $(-> $answer)?;)*
        }
    };
}

/// Declares the shim's functions. Loaded, each goes through a table that `load` fills.
#[cfg(not(feature = "dpdk"))]
macro_rules! declare {
    ($($(#[$doc:meta])* pub fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        /// The functions of the loaded shim.
        pub(crate) struct Table {
            $($name: unsafe extern "C" fn($($ty),*) $(-> $answer)?,)*
        }

        impl Table {
            /// # Safety
            /// What `find` gives for a name is the function of that name in a shim of this version.
            pub(crate) unsafe fn fill<E>(
                mut find: impl FnMut(&'static str) -> Result<*mut c_void, E>,
            ) -> Result<Table, E> {
                Ok(Table {
                    // SAFETY: a pointer to a function, of the type it is declared with.
                    $($name: unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) $(-> $answer)?>(
                            find(concat!(stringify!($name), "\0"))?,
                        )
                    },)*
                })
            }
        }

        $($(#[$doc])*
        ///
        /// # Safety
        /// As C's; [`crate::load`] has succeeded.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $ty),*) $(-> $answer)? {
            // SAFETY: the caller's.
            unsafe { (crate::shim::table().$name)($($arg),*) }
        })*
    };
}

pub(crate) use declare;

/// Why the shim is not to be had, and what would change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError(String);

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// Makes the shim's functions callable. To be called before any of them; later calls do nothing.
#[cfg(feature = "dpdk")]
pub fn load() -> Result<(), LoadError> {
    Ok(())
}

#[cfg(not(feature = "dpdk"))]
pub use loaded::load;
#[cfg(not(feature = "dpdk"))]
pub(crate) use loaded::table;

#[cfg(not(feature = "dpdk"))]
mod loaded {
    use std::ffi::{CStr, CString, c_void};
    use std::path::PathBuf;
    use std::sync::{Mutex, OnceLock, PoisonError};

    use super::LoadError;
    use crate::ffi::Table;

    /// The shim's file.
    const FILE: &str = "libjanus_dpdk.so";
    /// Names the shim's file; nothing else is tried then.
    const VARIABLE: &str = "JANUS_DPDK_SHIM";

    static TABLE: OnceLock<Table> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());

    #[inline]
    pub(crate) fn table() -> &'static Table {
        TABLE
            .get()
            .expect("janus_dpdk_sys::load() comes before the shim's functions")
    }

    /// Makes the shim's functions callable. To be called before any of them; later calls do nothing.
    ///
    /// The file is what `JANUS_DPDK_SHIM` names; else `libjanus_dpdk.so` beside the program, where the system's linker
    /// looks, or where the build has put it.
    pub fn load() -> Result<(), LoadError> {
        let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if TABLE.get().is_some() {
            return Ok(());
        }
        let mut tried = Vec::new();
        for place in places() {
            match open(&place) {
                Ok(table) => {
                    let _ = TABLE.set(table);
                    return Ok(());
                }
                Err(why) => tried.push(why),
            }
        }
        Err(LoadError(format!(
            "DPDK is not to be had on this machine: install DPDK 22.11 or later (Debian: `apt install libdpdk-dev`) and \
             build the shim (`shim/build.sh DIRECTORY` of janus-dpdk-sys), then put {FILE} beside the program or its path into \
             {VARIABLE}. Tried: {}",
            tried.join("; ")
        )))
    }

    fn places() -> Vec<PathBuf> {
        if let Some(named) = std::env::var_os(VARIABLE) {
            return vec![named.into()];
        }
        let beside = std::env::current_exe().ok();
        let beside = beside.and_then(|program| Some(program.parent()?.join(FILE)));
        let built = option_env!("JANUS_DPDK_SHIM_BUILT").map(PathBuf::from);
        // A bare name is looked for by the system's rules.
        let system = Some(PathBuf::from(FILE));
        [beside, system, built].into_iter().flatten().collect()
    }

    fn open(place: &std::path::Path) -> Result<Table, String> {
        use std::os::unix::ffi::OsStrExt;
        let path = CString::new(place.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the path is zero-terminated. The file's initialisers are the shim's (it has none) and DPDK's.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(last_error());
        }
        let find = |name: &'static str| -> Result<*mut c_void, String> {
            let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|e| e.to_string())?;
            // SAFETY: `library` is open and stays so; the name is zero-terminated.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            if found.is_null() {
                let name = name.to_string_lossy();
                return Err(format!(
                    "{} is of another version: no {name}",
                    place.display()
                ));
            }
            Ok(found)
        };
        // SAFETY: the names are the shim's own; a file of another version lacks one or more of them.
        unsafe { Table::fill(find) }
    }

    fn last_error() -> String {
        // SAFETY: the answer is null or a string that stays until this thread's next call of these functions.
        unsafe {
            let text = libc::dlerror();
            if text.is_null() {
                return "unknown error".into();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
