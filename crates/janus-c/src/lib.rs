//! Janus for programs in C. `include/janus.h` declares what is here and says what each call does; `docs/c.md` is the manual.
//!
//! [`symbols`] has the names of `janus.h`; each calls a function with the same arguments in [`calls`], [`bytes`] or [`ready`], which
//! another library with other names can call too. Those read the caller's memory (`layout`) and ask [`janus_process::Process`], of which
//! there is one, started by the first call ([`process`]).
//! What never lives here: what a call means.

pub mod bytes;
pub mod calls;
mod errno;
mod layout;
pub mod process;
pub mod ready;
mod restart;
pub mod symbols;

pub use errno::fail;
pub use layout::address;
