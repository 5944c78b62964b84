//! More than a server can take: SYNs from everywhere, readers that do not read, memory that is full, connections that
//! nobody accepts. The others go on meanwhile, memory stays under its bound, all that was begun comes to a good end
//! when the trouble is over, and the counters tell what it was. Over the in-memory wire, in every layout.
//! `JANUS_SLOW_READERS` is how many connections there are on which nobody reads.

mod flood;
mod never_accepted;
mod others;
mod scene;
mod slow_readers;
mod syn_flood;
mod syn_torrent;
mod unread;

use never_accepted::connections_that_nobody_accepts;
use slow_readers::readers_that_do_not_read;
use syn_flood::syns_from_everywhere;
use unread::data_that_nobody_reads;

in_every_layout!(
    syns_from_everywhere,
    readers_that_do_not_read,
    data_that_nobody_reads,
    connections_that_nobody_accepts,
);
