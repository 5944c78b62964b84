//! `execl` and its kin: the arguments are listed in the call, as many as there are.

use core::arch::naked_asm;

use libc::{c_char, c_int};

use crate::ends;

/// More arguments than this are refused, as the system refuses what is too long.
const MOST: usize = 4096;
/// Arguments that a call brings in registers, after the path.
const IN_REGISTERS: usize = 5;

/// Arguments of a call, in their order.
struct Listed {
    registers: *const *const c_char,
    stack: *const *const c_char,
    taken: usize,
}

impl Listed {
    /// # Safety
    /// There is one more.
    unsafe fn next(&mut self) -> *const c_char {
        let at = self.taken;
        self.taken += 1;
        // SAFETY: the first are where the registers were put, the others where the caller put them.
        unsafe {
            match at.checked_sub(IN_REGISTERS) {
                None => *self.registers.add(at),
                Some(at) => *self.stack.add(at),
            }
        }
    }

    /// Takes them up to the null that ends them, and hands them on. No memory is allocated: a forked child may have taken the allocator's lock
    /// with it.
    ///
    /// # Safety
    /// A null ends them.
    unsafe fn all(
        &mut self,
        exec: impl FnOnce(&mut Listed, *const *const c_char) -> c_int,
    ) -> c_int {
        let mut arguments = [core::ptr::null(); MOST];
        for place in &mut arguments {
            // SAFETY: the null has not come yet.
            *place = unsafe { self.next() };
            if place.is_null() {
                return exec(self, arguments.as_ptr());
            }
        }
        janus_c::fail(janus_process::Errno(libc::E2BIG))
    }
}

macro_rules! listed {
    ($($name:ident($path:ident, $list:ident, $arguments:ident) = $exec:expr;)*) => {$(
        /// # Safety
        /// The contract of libc's function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            unsafe extern "C" fn listed(
                $path: *const c_char,
                registers: *const *const c_char,
                stack: *const *const c_char,
            ) -> c_int {
                let mut all = Listed { registers, stack, taken: 0 };
                // SAFETY: the caller keeps the contract of libc's function.
                unsafe { all.all(|$list, $arguments| $exec) }
            }
            naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // Behind what rbp was, and the way back.
                "lea rdx, [rbp + 16]",
                "sub rsp, 8",
                "call {listed}",
                "leave",
                "ret",
                listed = sym listed,
            )
        }
    )*};
}

listed! {
    execl(path, _list, arguments) = ends::execv(path, arguments);
    execlp(file, _list, arguments) = ends::execvp(file, arguments);
    // The environment comes behind the null.
    execle(path, list, arguments) = ends::execve(path, arguments, list.next().cast());
}
