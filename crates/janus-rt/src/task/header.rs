//! The front of a task's slot: 16 bytes of header, then the future, which its output later replaces. With it a 40-byte future fits a
//! 64-byte slot. Only the thread of the executor ever touches a slot, so nothing here is atomic. The executor decides when a task is
//! polled, woken or freed.

use std::any::{Any, type_name};
use std::cell::Cell;
use std::future::Future;
use std::mem::{ManuallyDrop, offset_of};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::class::Class;
use crate::inbox::GENERATION_MAX;

/// Payload of a panic.
pub(super) type PanicPayload = Box<dyn Any + Send>;

const FLAG_BITS: u32 = 10;
const FLAGS: u32 = (1 << FLAG_BITS) - 1;
const STAGE: u32 = 0b111;
/// One entry in the ready queue stands for this task. While RUNNING: it was woken
/// during its poll and goes back to the queue.
pub(super) const QUEUED: u32 = 1 << 3;
/// Its future is being polled or dropped now.
pub(super) const RUNNING: u32 = 1 << 4;
/// A `JoinHandle` exists.
pub(super) const HANDLE: u32 = 1 << 5;
/// The future is to be dropped instead of polled.
pub(super) const ABORT: u32 = 1 << 6;
/// `link` names the waker of the task that awaits the `JoinHandle`.
pub(super) const JOINED: u32 = 1 << 7;
/// No handle to the task was ever made, so that nothing but wakers can name it. One that is left of it wakes a later task in its slot,
/// which is legal: the slot keeps its generation, and is never used up.
pub(super) const NAMELESS: u32 = 1 << 8;

/// Content of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    /// Empty, and the slot belongs to no task. All zero bytes mean this.
    Vacant = 0,
    /// The future.
    Future = 1,
    /// The future's output.
    Output = 2,
    /// The payload of its panic.
    Panic = 3,
    /// Empty: the task was cancelled, or its end is being handled.
    Empty = 4,
}

/// Functions of a future whose type is erased.
pub(crate) struct VTable {
    /// Polls the future. When it is ready, drops it and puts the output in its place.
    ///
    /// # Safety
    /// The slot is in stage `Future`, nothing else uses its payload until the call returns.
    pub(super) poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    /// Drops the future.
    ///
    /// # Safety
    /// The slot held the future, and its stage no longer says so.
    pub(super) drop_future: unsafe fn(NonNull<Header>),
    /// Drops the output.
    ///
    /// # Safety
    /// The slot held the output, and its stage no longer says so.
    pub(super) drop_output: unsafe fn(NonNull<Header>),
    /// Moves the output to the pointer's target: a `T` of `JoinHandle<T>`.
    ///
    /// # Safety
    /// As `drop_output`; the target is fit for a `T`, and `T` is the type the task was spawned with.
    pub(super) take_output: unsafe fn(NonNull<Header>, *mut ()),
    /// Where `Stage::Panic` keeps its payload.
    ///
    /// # Safety
    /// The pointer is to a slot of this table's type.
    pub(super) panic: unsafe fn(NonNull<Header>) -> NonNull<PanicPayload>,
    /// Class of its slot.
    pub(super) class: Class,
    /// Returns the name of the future's type.
    pub(super) name: fn() -> &'static str,
}

/// The front of a slot. All zero bytes are a valid, vacant header.
#[repr(C)]
pub(super) struct Header {
    vtable: Cell<Option<&'static VTable>>,
    /// Generation (22 bits), flags, stage.
    meta: Cell<u32>,
    /// Vacant: the next free slot of the class. Else with JOINED: index in the table of join wakers.
    link: Cell<u32>,
}

const _: () = assert!(size_of::<Header>() == 16);
const _: () = assert!(NAMELESS < 1 << FLAG_BITS && GENERATION_MAX == u32::MAX >> FLAG_BITS);

impl Header {
    #[inline]
    pub(super) fn vtable(&self) -> &'static VTable {
        match self.vtable.get() {
            Some(vtable) => vtable,
            None => unreachable!("a slot that was never taken has no table"),
        }
    }

    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.meta.get() >> FLAG_BITS
    }

    #[inline]
    pub(super) fn stage(&self) -> Stage {
        match self.meta.get() & STAGE {
            1 => Stage::Future,
            2 => Stage::Output,
            3 => Stage::Panic,
            4 => Stage::Empty,
            _ => Stage::Vacant,
        }
    }

    #[inline]
    pub(super) fn set_stage(&self, stage: Stage) {
        self.meta.set(self.meta.get() & !STAGE | stage as u32);
    }

    #[inline]
    pub(super) fn has(&self, flag: u32) -> bool {
        self.meta.get() & flag != 0
    }

    #[inline]
    pub(super) fn set(&self, flag: u32) {
        self.meta.set(self.meta.get() | flag);
    }

    #[inline]
    pub(super) fn clear(&self, flag: u32) {
        self.meta.set(self.meta.get() & !flag);
    }

    #[inline]
    pub(super) fn link(&self) -> u32 {
        self.link.get()
    }

    #[inline]
    pub(super) fn set_link(&self, link: u32) {
        self.link.set(link);
    }

    /// Notes a wake. Returns true when the caller must queue the task.
    #[inline]
    pub(super) fn wake(&self) -> bool {
        let meta = self.meta.get();
        if meta & (STAGE | QUEUED) != Stage::Future as u32 {
            return false;
        }
        self.meta.set(meta | QUEUED);
        meta & RUNNING == 0
    }

    /// Called when the task is taken from the queue to be polled.
    #[inline]
    pub(super) fn begin(&self) {
        self.meta.set(self.meta.get() & !QUEUED | RUNNING);
    }

    /// Called after a poll that was pending. Returns true when the task was woken meanwhile: the caller queues it.
    #[inline]
    pub(super) fn pause(&self) -> bool {
        let meta = self.meta.get();
        self.meta.set(meta & !RUNNING);
        meta & QUEUED != 0
    }

    /// Ends the task: no flags and, where it had a name, a new generation. Returns false when the slot's generations are used up.
    #[inline]
    pub(super) fn vacate(&self) -> bool {
        let generation = self.generation();
        let named = !self.has(NAMELESS);
        let next = (generation + u32::from(named)).min(GENERATION_MAX);
        self.meta.set(next << FLAG_BITS | Stage::Vacant as u32);
        !named || next != generation
    }

    #[cfg(test)]
    pub(super) fn set_generation(&self, generation: u32) {
        self.meta
            .set(self.meta.get() & FLAGS | generation << FLAG_BITS);
    }
}

/// Output of a task in its slot, and how the handle gets it: in place, or through a box.
pub(super) trait Stored: Future {
    /// Output of the `JoinHandle`.
    type Result;
    fn unwrap(output: Self::Output) -> Self::Result;
    /// Returns the type of the future that was spawned.
    fn name() -> &'static str;
}

/// A future that lives in its slot.
pub(super) struct Inline<F>(F);

/// A future too large for any slot.
pub(super) struct Boxed<F>(Pin<Box<F>>);

impl<F> Inline<F> {
    pub(super) fn new(future: F) -> Inline<F> {
        Inline(future)
    }
}

impl<F> Boxed<F> {
    pub(super) fn new(future: F) -> Boxed<F> {
        Boxed(Box::pin(future))
    }
}

impl<F: Future> Future for Inline<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the field is pinned because the whole is: this is its only access, and there is no Drop impl.
        unsafe { self.map_unchecked_mut(|inline| &mut inline.0) }.poll(cx)
    }
}

impl<F: Future> Stored for Inline<F> {
    type Result = F::Output;

    #[inline]
    fn unwrap(output: F::Output) -> F::Output {
        output
    }

    fn name() -> &'static str {
        type_name::<F>()
    }
}

impl<F: Future> Future for Boxed<F> {
    type Output = Box<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<F::Output>> {
        self.0.as_mut().poll(cx).map(Box::new)
    }
}

impl<F: Future> Stored for Boxed<F> {
    type Result = F::Output;

    fn unwrap(output: Box<F::Output>) -> F::Output {
        *output
    }

    fn name() -> &'static str {
        type_name::<F>()
    }
}

/// A slot as its own future sees it. `header` is first, so a pointer to the one is a pointer to the other.
#[repr(C)]
struct Layout<S: Stored> {
    header: Header,
    payload: Payload<S>,
}

#[repr(C)]
union Payload<S: Stored> {
    future: ManuallyDrop<S>,
    output: ManuallyDrop<S::Output>,
    panic: ManuallyDrop<PanicPayload>,
}

/// Returns the class of the slot for this future and its output; `None` when the future must be boxed.
pub(super) const fn class_of<S: Stored>() -> Option<Class> {
    Class::of(size_of::<Layout<S>>(), align_of::<Layout<S>>())
}

impl<S: Stored> Layout<S> {
    const VTABLE: &'static VTable = &VTable {
        poll: Self::poll,
        drop_future: Self::drop_future,
        drop_output: Self::drop_output,
        take_output: Self::take_output,
        panic: Self::panic,
        class: match class_of::<S>() {
            Some(class) => class,
            // Never used: without a class there is no slot to write to.
            None => Class::LARGEST,
        },
        name: S::name,
    };

    /// Returns the payload's address. Derived from the slot's pointer, never from a `&Header`, which may not reach so far.
    ///
    /// # Safety
    /// `slot` points to a slot of this type.
    #[inline]
    unsafe fn payload(slot: NonNull<Header>) -> *mut Payload<S> {
        // SAFETY: the payload lies within the same slot.
        unsafe {
            slot.as_ptr()
                .byte_add(offset_of!(Self, payload))
                .cast::<Payload<S>>()
        }
    }

    unsafe fn poll(slot: NonNull<Header>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the caller says that the slot is of this type and holds the future, and that nothing else uses the
        // payload meanwhile. Slots never move, and the future stays until it is dropped in place: it is pinned.
        let output = unsafe {
            let future = &mut *Self::payload(slot).cast::<S>();
            match Pin::new_unchecked(future).poll(cx) {
                Poll::Ready(output) => output,
                Poll::Pending => return Poll::Pending,
            }
        };
        // SAFETY: slots stay mapped as long as the executor; headers are only accessed by this thread.
        unsafe { slot.as_ref() }.set_stage(Stage::Empty);
        // SAFETY: held the future, as above; the stage says no more that it does, should this panic.
        unsafe { Self::drop_future(slot) };
        // SAFETY: the payload is empty now and has room for the output.
        unsafe { Self::payload(slot).cast::<S::Output>().write(output) };
        // SAFETY: as above.
        unsafe { slot.as_ref() }.set_stage(Stage::Output);
        Poll::Ready(())
    }

    unsafe fn drop_future(slot: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { Self::payload(slot).cast::<S>().drop_in_place() };
    }

    unsafe fn drop_output(slot: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { Self::payload(slot).cast::<S::Output>().drop_in_place() };
    }

    unsafe fn take_output(slot: NonNull<Header>, to: *mut ()) {
        // SAFETY: the caller's promise: the output is there and is read once; `to` is fit for it.
        unsafe {
            let output = Self::payload(slot).cast::<S::Output>().read();
            to.cast::<S::Result>().write(S::unwrap(output));
        }
    }

    unsafe fn panic(slot: NonNull<Header>) -> NonNull<PanicPayload> {
        // SAFETY: the caller's promise; a field of the slot is not null.
        unsafe { NonNull::new_unchecked(Self::payload(slot).cast()) }
    }
}

/// Turns a vacant slot into a task's: table, future, flags.
///
/// # Safety
/// `slot` is vacant, has no other owner, and is at least `class_of::<S>()` large.
#[inline]
pub(super) unsafe fn write<S: Stored>(slot: NonNull<Header>, future: S, flags: u32) {
    // SAFETY: the caller's promise: the slot has room for the payload, and there is no reference to it; its header is valid.
    unsafe {
        Layout::<S>::payload(slot).cast::<S>().write(future);
        let header = slot.as_ref();
        header.vtable.set(Some(Layout::<S>::VTABLE));
        header
            .meta
            .set(header.meta.get() & !FLAGS | flags | Stage::Future as u32);
    }
}

/// Returns the table of such a slot.
#[inline]
pub(super) fn vtable<S: Stored>() -> &'static VTable {
    Layout::<S>::VTABLE
}

/// Polls the future of a slot whose type is known. See [`VTable::poll`].
///
/// # Safety
/// As there; the slot was written with an `S`.
#[inline]
pub(super) unsafe fn poll<S: Stored>(slot: NonNull<Header>, cx: &mut Context<'_>) -> Poll<()> {
    // SAFETY: the caller's promise.
    unsafe { Layout::<S>::poll(slot, cx) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sized40([u64; 5]);

    impl Future for Sized40 {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            assert_eq!(self.0.len(), 5);
            Poll::Ready(())
        }
    }

    struct Of<T>(T);

    impl<T> Future for Of<T> {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            let _ = &self.0;
            Poll::Ready(())
        }
    }

    #[repr(align(128))]
    struct Aligned128;

    /// Returns the bytes of the slot for a future's task, inline or boxed.
    fn bytes<S: Stored>() -> Option<usize> {
        class_of::<S>().map(Class::bytes)
    }

    #[test]
    fn an_echo_task_of_forty_bytes_fits_one_line() {
        assert_eq!(bytes::<Inline<Sized40>>(), Some(64));
        assert_eq!(bytes::<Inline<Of<[u64; 6]>>>(), Some(64));
        assert_eq!(bytes::<Inline<Of<[u64; 7]>>>(), Some(96));
        assert_eq!(bytes::<Inline<Of<[u64; 10]>>>(), Some(96));
        assert_eq!(bytes::<Inline<Of<[u64; 11]>>>(), Some(128));
    }

    #[test]
    fn what_does_not_fit_a_slot_is_boxed() {
        assert_eq!(bytes::<Inline<Of<[u8; 4080]>>>(), Some(4096));
        assert_eq!(bytes::<Inline<Of<[u8; 4081]>>>(), None);
        assert_eq!(bytes::<Inline<Of<Aligned128>>>(), None);
        assert_eq!(bytes::<Boxed<Of<[u8; 9000]>>>(), Some(64));
    }

    #[test]
    fn the_last_generation_is_the_last() {
        let header = Header {
            vtable: Cell::new(None),
            meta: Cell::new(0),
            link: Cell::new(0),
        };
        assert_eq!(header.stage(), Stage::Vacant);
        assert!(header.vacate());
        assert_eq!(header.generation(), 1);
        header.set_generation(GENERATION_MAX);
        header.set(NAMELESS);
        assert!(header.vacate() && header.generation() == GENERATION_MAX);
        assert!(!header.vacate());
    }
}
