//! epoll(7): which descriptors an instance watches, and the list of those on which something has happened since they were
//! last told. What happened is learned from the stack's wake-ups ([`crate::watch`]), so that a call costs what is ready
//! and not what is watched. Level, edge and one-shot differ only in what becomes of an item once it is told, as in Linux
//! (ep_send_events).
//! What never lives here: what is ready about a socket; that is `poll`.

use janus_tcp::Instant;

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{Entry, NO_ITEM, slot_of};

#[cfg(test)]
mod tests;

type Result<T> = std::result::Result<T, Errno>;

/// How deep instances may watch each other (EP_MAX_NESTS and the one below).
const NESTS_MAX: usize = 5;
/// The bits that say how to tell, not what (EP_PRIVATE_BITS).
const HOW: u32 = abi::EPOLLWAKEUP as u32
    | abi::EPOLLONESHOT as u32
    | abi::EPOLLET as u32
    | abi::EPOLLEXCLUSIVE as u32;
/// Flags that may stand beside EPOLLEXCLUSIVE (EPOLLEXCLUSIVE_OK_BITS).
const BESIDE_EXCLUSIVE: u32 = abi::EPOLLIN as u32
    | abi::EPOLLOUT as u32
    | abi::EPOLLERR as u32
    | abi::EPOLLHUP as u32
    | abi::EPOLLWAKEUP as u32
    | abi::EPOLLET as u32
    | abi::EPOLLEXCLUSIVE as u32;
/// Events that are always watched for.
const ALWAYS: u32 = abi::EPOLLERR as u32 | abi::EPOLLHUP as u32;

/// Event that `epoll_wait` returns: `struct epoll_event` without its packing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollEvent {
    /// `EPOLLIN` and so on.
    pub events: u32,
    /// The data set with `epoll_ctl`.
    pub data: u64,
}

/// A place in a doubly linked list of items.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link {
    before: NO_ITEM,
    after: NO_ITEM,
};

/// A list of items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

const EMPTY: List = List {
    head: NO_ITEM,
    tail: NO_ITEM,
    len: 0,
};

/// One instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    /// Its items, and those of them that are to be looked at.
    own: List,
    ready: List,
    /// The first of the items of other instances that watch this one.
    pub(crate) watch: u32,
    /// Somebody waits for it who is no epoll instance.
    pub(crate) waited: bool,
    pub(crate) close_on_exec: bool,
}

/// That an instance watches a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// The slots of the instance and of what it watches.
    epoll: u32,
    target: u32,
    /// The descriptor by which it was added: each name of a socket may be watched for itself.
    name: i32,
    events: u32,
    data: u64,
    /// The next item that watches the same.
    pub(crate) next: u32,
    own: Link,
    ready: Link,
    is_ready: bool,
}

/// All items of all instances.
#[derive(Default)]
pub(crate) struct Items {
    items: Vec<Item>,
    /// Given back.
    free: Vec<u32>,
}

/// Which of an item's two places is meant.
type Place = fn(&mut Item) -> &mut Link;

fn own(item: &mut Item) -> &mut Link {
    &mut item.own
}

fn ready(item: &mut Item) -> &mut Link {
    &mut item.ready
}

impl Items {
    fn insert(&mut self, item: Item) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.items[id as usize] = item;
                id
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        }
    }

    pub(crate) fn get(&self, id: u32) -> &Item {
        &self.items[id as usize]
    }

    fn get_mut(&mut self, id: u32) -> &mut Item {
        &mut self.items[id as usize]
    }

    fn push(&mut self, list: &mut List, place: Place, id: u32) {
        *place(self.get_mut(id)) = Link {
            before: list.tail,
            after: NO_ITEM,
        };
        match list.tail {
            NO_ITEM => list.head = id,
            tail => place(self.get_mut(tail)).after = id,
        }
        list.tail = id;
        list.len += 1;
    }

    fn take(&mut self, list: &mut List, place: Place, id: u32) {
        let link = std::mem::replace(place(self.get_mut(id)), UNLINKED);
        match link.before {
            NO_ITEM => list.head = link.after,
            before => place(self.get_mut(before)).after = link.after,
        }
        match link.after {
            NO_ITEM => list.tail = link.before,
            after => place(self.get_mut(after)).before = link.before,
        }
        list.len -= 1;
    }
}

impl Sockets<'_> {
    /// `epoll_create1(2)`. The argument of `epoll_create` only has to be positive, which is its caller's affair.
    pub fn epoll_create(&mut self, flags: i32) -> Result<i32> {
        if flags & !abi::EPOLL_CLOEXEC != 0 {
            return Err(Errno::EINVAL);
        }
        self.files.table.insert(Entry::Epoll(Epoll {
            own: EMPTY,
            ready: EMPTY,
            watch: NO_ITEM,
            waited: false,
            close_on_exec: flags != 0,
        }))
    }

    /// `epoll_ctl(2)`. `events` and `data` mean nothing to `EPOLL_CTL_DEL`.
    pub fn epoll_ctl(
        &mut self,
        now: Instant,
        epfd: i32,
        op: i32,
        fd: i32,
        events: u32,
        data: u64,
    ) -> Result<()> {
        self.epoll_ctl_named(now, epfd, op, (fd, fd), events, data)
    }

    /// [`Sockets::epoll_ctl`] where descriptors have several names (`dup(2)`): an instance knows what it watches by descriptor and name.
    pub fn epoll_ctl_named(
        &mut self,
        now: Instant,
        epfd: i32,
        op: i32,
        (fd, name): (i32, i32),
        events: u32,
        data: u64,
    ) -> Result<()> {
        let (epoll, target) = (slot_of(epfd)?, slot_of(fd)?);
        // The order of do_epoll_ctl.
        let nested = match (
            self.files.table.entry(epoll),
            self.files.table.entry(target),
        ) {
            (None, _) | (_, None) => return Err(Errno::EBADF),
            _ if epoll == target => return Err(Errno::EINVAL),
            (Some(Entry::Socket(_)), _) => return Err(Errno::EINVAL),
            (_, Some(entry)) => matches!(entry, Entry::Epoll(_)),
        };
        let exclusive = events & abi::EPOLLEXCLUSIVE as u32 != 0;
        if exclusive && op != abi::EPOLL_CTL_DEL {
            let wrong = op == abi::EPOLL_CTL_MOD || nested || events & !BESIDE_EXCLUSIVE != 0;
            if wrong {
                return Err(Errno::EINVAL);
            }
        }
        self.gather();
        let known = self.item_of(epoll, target, name);
        match (op, known) {
            (abi::EPOLL_CTL_ADD, Some(_)) => Err(Errno::EEXIST),
            (abi::EPOLL_CTL_ADD, None) => {
                if nested && self.would_circle(epoll, target) {
                    return Err(Errno::ELOOP);
                }
                self.add_item(now, (epoll, target, name), events | ALWAYS, data);
                Ok(())
            }
            (abi::EPOLL_CTL_DEL | abi::EPOLL_CTL_MOD, None) => Err(Errno::ENOENT),
            (abi::EPOLL_CTL_DEL, Some(item)) => {
                self.remove_item(item);
                Ok(())
            }
            (abi::EPOLL_CTL_MOD, Some(item)) => {
                let known = self.files.items.get_mut(item);
                if known.events & abi::EPOLLEXCLUSIVE as u32 != 0 {
                    return Err(Errno::EINVAL);
                }
                (known.events, known.data) = (events | ALWAYS, data);
                self.look_at(now, item);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `epoll_wait(2)`: how many events were put into `into`; none means that a caller with time to spare should wait for
    /// the descriptor ([`Sockets::wait`]).
    pub fn epoll_wait(
        &mut self,
        now: Instant,
        epfd: i32,
        into: &mut [EpollEvent],
    ) -> Result<usize> {
        if into.is_empty() {
            return Err(Errno::EINVAL);
        }
        let slot = slot_of(epfd)?;
        self.gather();
        let left = match self.files.table.entry(slot) {
            None => return Err(Errno::EBADF),
            Some(Entry::Socket(_)) => return Err(Errno::EINVAL),
            Some(Entry::Epoll(epoll)) => epoll.ready.len,
        };
        let mut told = 0;
        for _ in 0..left {
            let Some(event) = into.get_mut(told) else {
                break;
            };
            let Some(id) = self.first_ready(slot) else {
                break;
            };
            self.unready(id);
            let (target, wanted, data) = {
                let item = self.files.items.get(id);
                (item.target, item.events, item.data)
            };
            let events = self.mask_of(now, target) & wanted;
            if events & !HOW == 0 {
                continue;
            }
            *event = EpollEvent { events, data };
            told += 1;
            if wanted & abi::EPOLLONESHOT as u32 != 0 {
                self.files.items.get_mut(id).events &= HOW;
            } else if wanted & abi::EPOLLET as u32 == 0 {
                self.make_ready(id);
            }
        }
        Ok(told)
    }

    fn first_ready(&mut self, slot: u32) -> Option<u32> {
        let head = self.files.table.epoll(slot)?.ready.head;
        (head != NO_ITEM).then_some(head)
    }

    /// The item by which an instance watches something under a name.
    fn item_of(&mut self, epoll: u32, target: u32, name: i32) -> Option<u32> {
        let mut at = *self.files.table.watch(target)?;
        while at != NO_ITEM {
            let item = self.files.items.get(at);
            if (item.epoll, item.name) == (epoll, name) {
                return Some(at);
            }
            at = item.next;
        }
        None
    }

    fn add_item(
        &mut self,
        now: Instant,
        (epoll, target, name): (u32, u32, i32),
        events: u32,
        data: u64,
    ) {
        let Some(first) = self.files.table.watch(target).copied() else {
            return;
        };
        let id = self.files.items.insert(Item {
            epoll,
            target,
            name,
            events,
            data,
            next: NO_ITEM,
            own: UNLINKED,
            ready: UNLINKED,
            is_ready: false,
        });
        // The order of a wait queue: first come first served, and those who want to be woken alone at the end.
        if first == NO_ITEM || events & abi::EPOLLEXCLUSIVE as u32 == 0 {
            self.files.items.get_mut(id).next = first;
            if let Some(watch) = self.files.table.watch(target) {
                *watch = id;
            }
        } else {
            let mut last = first;
            while self.files.items.get(last).next != NO_ITEM {
                last = self.files.items.get(last).next;
            }
            self.files.items.get_mut(last).next = id;
        }
        if let Some(instance) = self.files.table.epoll(epoll) {
            self.files.items.push(&mut instance.own, own, id);
        }
        if first == NO_ITEM {
            self.note_stage(target);
        }
        self.arm(target);
        self.look_at(now, id);
    }

    fn remove_item(&mut self, id: u32) {
        self.unready(id);
        let item = *self.files.items.get(id);
        if let Some(instance) = self.files.table.epoll(item.epoll) {
            self.files.items.take(&mut instance.own, own, id);
        }
        if let Some(first) = self.files.table.watch(item.target) {
            if *first == id {
                *first = item.next;
            } else {
                let mut before = *first;
                while self.files.items.get(before).next != id {
                    before = self.files.items.get(before).next;
                }
                self.files.items.get_mut(before).next = item.next;
            }
        }
        self.files.items.free.push(id);
    }

    /// Removes every watch on a descriptor that is being closed. The descriptor is in the table still.
    pub(crate) fn unwatch(&mut self, slot: u32) {
        while let Some(&mut first) = self.files.table.watch(slot) {
            if first == NO_ITEM {
                break;
            }
            self.remove_item(first);
        }
        while let Some(instance) = self.files.table.epoll(slot) {
            let head = instance.own.head;
            if head == NO_ITEM {
                break;
            }
            self.remove_item(head);
        }
    }

    /// Queues an item whose target is ready now, after the item is added or changed (ep_insert, ep_modify).
    fn look_at(&mut self, now: Instant, id: u32) {
        let (target, wanted) = {
            let item = self.files.items.get(id);
            (item.target, item.events)
        };
        if self.mask_of(now, target) & wanted & !HOW != 0 {
            self.make_ready(id);
        }
    }

    fn unready(&mut self, id: u32) {
        let item = self.files.items.get_mut(id);
        if !std::mem::replace(&mut item.is_ready, false) {
            return;
        }
        let epoll = item.epoll;
        if let Some(instance) = self.files.table.epoll(epoll) {
            self.files.items.take(&mut instance.ready, ready, id);
        }
    }

    /// The item is to be looked at by the next `epoll_wait`, and who waits for the instance should call that.
    fn make_ready(&mut self, id: u32) {
        let item = self.files.items.get_mut(id);
        let epoll = item.epoll;
        let already = std::mem::replace(&mut item.is_ready, true);
        let Some(instance) = self.files.table.epoll(epoll) else {
            return;
        };
        if !already {
            self.files.items.push(&mut instance.ready, ready, id);
        }
        if std::mem::take(&mut instance.waited) {
            self.files.woken.push_back(epoll);
        }
        if instance.watch != NO_ITEM {
            self.notify(epoll, abi::EPOLLIN as u32 | abi::EPOLLRDNORM as u32);
        }
    }

    /// Something happened to what is in a slot: `what` says what it may have made ready. Of those who want to be woken alone,
    /// one whose instance is being waited for is enough (ep_poll_callback).
    pub(crate) fn notify(&mut self, slot: u32, what: u32) {
        let mut at = self.files.table.watch(slot).map_or(NO_ITEM, |first| *first);
        while at != NO_ITEM {
            let item = *self.files.items.get(at);
            let wanted = item.events & !HOW;
            if wanted & what != 0 {
                let alone = item.events & abi::EPOLLEXCLUSIVE as u32 != 0;
                let waited = self.files.table.epoll(item.epoll).is_some_and(|e| e.waited);
                self.make_ready(at);
                if alone && waited && what != u32::MAX {
                    return;
                }
            }
            at = item.next;
        }
    }

    /// Whether an instance has something to tell. What has nothing leaves the list on the way.
    pub(crate) fn epoll_mask(&mut self, now: Instant, slot: u32) -> u32 {
        while let Some(id) = self.first_ready(slot) {
            let (target, wanted) = {
                let item = self.files.items.get(id);
                (item.target, item.events)
            };
            if self.mask_of(now, target) & wanted & !HOW != 0 {
                return abi::EPOLLIN as u32 | abi::EPOLLRDNORM as u32;
            }
            self.unready(id);
        }
        0
    }

    /// Whether `epoll` would come to watch itself through `target`, or too many watch through each other.
    fn would_circle(&mut self, epoll: u32, target: u32) -> bool {
        let below = self.depth_below(target, epoll, NESTS_MAX);
        let above = self.depth_above(epoll, NESTS_MAX);
        match (below, above) {
            (Some(below), Some(above)) => above + below > NESTS_MAX,
            _ => true,
        }
    }

    /// Instances in the longest chain from this one down; `None`: `forbidden` is in one, or it is too long.
    fn depth_below(&mut self, slot: u32, forbidden: u32, most: usize) -> Option<usize> {
        if slot == forbidden || most == 0 {
            return None;
        }
        let mut at = self.files.table.epoll(slot)?.own.head;
        let mut deepest = 0;
        while at != NO_ITEM {
            let item = *self.files.items.get(at);
            if self.files.table.epoll(item.target).is_some() {
                deepest = deepest.max(self.depth_below(item.target, forbidden, most - 1)?);
            }
            at = item.own.after;
        }
        Some(deepest + 1)
    }

    /// Counts the instances in the longest chain from this one up; `None`: it is too long.
    fn depth_above(&mut self, slot: u32, most: usize) -> Option<usize> {
        if most == 0 {
            return None;
        }
        let mut at = self.files.table.epoll(slot)?.watch;
        let mut highest = 0;
        while at != NO_ITEM {
            let item = *self.files.items.get(at);
            highest = highest.max(self.depth_above(item.epoll, most - 1)?);
            at = item.next;
        }
        Some(highest + 1)
    }
}
