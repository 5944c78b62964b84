//! Threads by the numbers the kernel gives them.

/// The calling thread's number.
pub(crate) fn id() -> i32 {
    // SAFETY: the call takes nothing, touches no memory and cannot fail.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process sleeps in a lock or a condition: not running, and in no other system call.
pub(crate) fn waits_for_another(thread: i32) -> bool {
    let path = format!("/proc/self/task/{thread}/syscall");
    let futex = libc::SYS_futex.to_string();
    std::fs::read_to_string(path).is_ok_and(|line| line.split(' ').next() == Some(&futex))
}

/// Lets the kernel page this process again. The tool pins all memory there is and will be, for the sake of real time;
/// a stack reserves far more addresses than it ever touches.
pub(crate) fn unlock_memory() {
    // SAFETY: the call takes nothing and changes nothing that a program can read.
    unsafe { libc::munlockall() };
}
