/* What Janus needs of DPDK, as plain functions over opaque pointers and structs of fixed layout. The hot calls of DPDK
 * are inline functions in its headers, and its structs change between releases: both stay on this side of the shim.
 * `src/ffi.rs` mirrors this file line by line; the sizes are asserted on both sides.
 *
 * Functions that can fail answer 0 (or a count) or a negative errno value. */
#ifndef JANUS_DPDK_H
#define JANUS_DPDK_H

#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;
struct jd_slots;

/* Frames handled by one call of a burst function. */
#define JD_BURST_MAX 64

/* Bytes of the headers of a chain. */
#define JD_HEADERS_MAX 128

/* Flags of a frame. */
#define JD_RX_IP_GOOD 0x0001
#define JD_RX_IP_BAD 0x0002
#define JD_RX_L4_GOOD 0x0004
#define JD_RX_L4_BAD 0x0008
#define JD_RX_HASH 0x0010
#define JD_RX_CHAINED 0x0020 /* more segments follow: `len` counts only the first */
#define JD_RX_L4_LEFT 0x0040 /* the data is whole, its checksum was left to a device: the field holds the pseudo header */
#define JD_TX_IP_CHECKSUM 0x0100
#define JD_TX_TCP_CHECKSUM 0x0200 /* the checksum field holds the folded pseudo header */
#define JD_TX_IPV6 0x0400         /* with JD_TX_TCP_CHECKSUM: the packet is IPv6 */
#define JD_TX_TSO 0x0800          /* with JD_TX_TCP_CHECKSUM: the packet begins a chain, see jd_packet */
#define JD_LENT 0x1000            /* of a packet to send: the slot comes back by `finish` */

struct jd_frame {
	struct rte_mbuf *mbuf;
	uint8_t *data;
	uint32_t hash;
	uint16_t len;
	uint16_t flags;
	uint16_t room; /* bytes from `data` to the end of the buffer */
	uint8_t l2_len; /* for JD_TX_*: bytes of each header */
	uint8_t l3_len;
	uint8_t l4_len;
	uint8_t reserved[3];
};

/* A frame in a slot: `slot` is counted from 1; `region`, `tag` and `key` are the caller's. */
struct jd_slot {
	uint32_t slot;
	uint16_t region;
	uint16_t off;
	uint16_t len;
	uint16_t tag;
	uint32_t key;
};

/* A frame in a slot, with what goes to and comes from the device. */
struct jd_packet {
	struct jd_slot frame;
	/* RSS hash, with JD_RX_HASH. With JD_TX_TSO: payload of each segment (bits 0 to 15), bytes of the TCP header (16 to
	 * 23), packets of the chain, this one among them (24 to 31). What leaves is
	 * the chain's headers and the payload of each. */
	uint32_t hash;
	uint16_t flags; /* JD_RX_*, JD_TX_*, JD_LENT */
	uint8_t l2_len; /* for JD_TX_*: bytes of each header */
	uint8_t l3_len;
};

/* How slots are taken and given back. Called on whatever thread calls DPDK. */
struct jd_hooks {
	void *context;
	/* `count` (at most JD_BURST_MAX) free slots, all (0) or none (a negative errno value). */
	int (*take)(void *context, uint32_t *slots, uint32_t count);
	/* Slots that a driver is finished with. */
	void (*give)(void *context, const uint32_t *slots, uint32_t count);
	/* A lent slot that a driver is finished with, as it was sent; `home` is what jd_slots_transmit was given. */
	void (*finish)(void *home, const struct jd_slot *loan);
	/* Slots that could be taken, about. */
	uint32_t (*available)(void *context);
};

/* The memory of the slots: `count` of `slot_size` bytes each, from `base` on. */
struct jd_slots_config {
	struct jd_hooks hooks;
	void *base;
	uint32_t count;
	uint16_t slot_size;
	uint16_t region;
	int32_t socket;
	uint32_t reserved;
};

/* What a receive call did, added up. */
struct jd_received {
	uint64_t frames;    /* the driver gave */
	uint64_t copied;    /* a driver handed over somebody else's memory, or a lent slot by its pointer */
	uint64_t too_long;  /* dropped: more than one buffer */
	uint64_t no_buffer; /* dropped: no slot to copy to */
};

/* Offloads, as capabilities and as wishes. */
#define JD_OFFLOAD_RX_CHECKSUM 0x01
#define JD_OFFLOAD_RX_HASH 0x02
#define JD_OFFLOAD_TX_IP_CHECKSUM 0x04
#define JD_OFFLOAD_TX_TCP_CHECKSUM 0x08
#define JD_OFFLOAD_TX_TSO 0x10
#define JD_OFFLOAD_RSS_TCP 0x20

struct jd_port_info {
	char driver[32];
	uint8_t mac[6];
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint16_t mtu;
	uint16_t mtu_max;
	uint16_t hash_key_len;
	uint16_t table_len; /* entries of the RSS redirection table */
	int16_t socket;
	uint32_t offloads;
	uint16_t chain_max; /* packets of a chain to send; 0: any number */
	uint16_t reserved;
};

struct jd_port_config {
	const uint8_t *hash_key; /* NULL: the driver's */
	uint32_t offloads;       /* those the port has not are left out; see jd_port_setup */
	uint16_t hash_key_len;
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t rx_descriptors; /* adjusted to what the driver takes */
	uint16_t tx_descriptors;
	uint16_t mtu; /* 0: as it is */
	uint8_t promiscuous;
	uint8_t interrupts; /* 1: receive queues can be waited for, where the driver has it */
	uint8_t reserved[6];
};

struct jd_stats {
	uint64_t rx_packets;
	uint64_t tx_packets;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t tx_errors;
	uint64_t rx_no_buffer;
};

/* Environment. */
int jd_eal_init(int argc, char **argv);
int jd_eal_cleanup(void);
int jd_thread_register(void);
void jd_thread_unregister(void);
const char *jd_version(void);
const char *jd_error_text(int error);

int jd_iova_is_va(void); /* devices see the addresses that the program sees */

/* Memory of the caller's that devices read and write: [base, base + len) in pages of `page` bytes. */
int jd_memory_add(void *base, uint64_t len, uint64_t page);
int jd_memory_remove(void *base, uint64_t len);
/* Shows it to one port's device; 0 also where the device needs no map. */
int jd_memory_map(uint16_t port, void *base, uint64_t len);

/* Pools. */
struct rte_mempool *jd_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t data_room, int socket, int *error);
void jd_pool_free(struct rte_mempool *pool);
uint32_t jd_pool_available(const struct rte_mempool *pool);
uint32_t jd_pool_in_use(const struct rte_mempool *pool);

/* Frames. */
int jd_frames_alloc(struct rte_mempool *pool, struct jd_frame *frames, uint16_t count);
void jd_frames_free(const struct jd_frame *frames, uint16_t count);

/* Slots. */
struct jd_slots *jd_slots_create(const char *name, const struct jd_slots_config *config, int *error);
void jd_slots_free(struct jd_slots *slots); /* no driver may hold any */
struct rte_mempool *jd_slots_pool(const struct jd_slots *slots);

/* Devices: `name` is a virtual device with its arguments (net_tap0,iface=t0) or a bus address. */
int jd_device_add(const char *name);
int jd_device_remove(uint16_t port); /* stops and closes the port first */

/* Ports. */
uint16_t jd_port_count(void);
int jd_port_by_name(const char *name, uint16_t *port);
int jd_port_info(uint16_t port, struct jd_port_info *info);
int jd_port_setup(uint16_t port, const struct jd_port_config *config, struct rte_mempool *const *pools, uint32_t *offloads);
int jd_port_start(uint16_t port);
int jd_port_stop(uint16_t port);
int jd_port_close(uint16_t port);
int jd_port_link(uint16_t port, uint32_t *mbit_per_s);
int jd_port_stats(uint16_t port, struct jd_stats *stats);
int jd_port_stats_reset(uint16_t port);
int jd_port_table_set(uint16_t port, const uint16_t *queues, uint16_t count);

/* The hot calls. */
uint16_t jd_rx_burst(uint16_t port, uint16_t queue, struct jd_frame *frames, uint16_t count);
uint16_t jd_tx_burst(uint16_t port, uint16_t queue, const struct jd_frame *frames, uint16_t count);
uint16_t jd_slots_receive(uint16_t port, uint16_t queue, struct jd_slots *slots, struct jd_packet *packets, uint16_t count,
			  struct jd_received *received);
/* How many went; the others are still the caller's. -EINVAL: the first one is nothing that this device can send. */
/* `headers` are those of the chains, JD_HEADERS_MAX bytes for each, in their order; NULL where there are none. */
int jd_slots_transmit(uint16_t port, uint16_t queue, struct jd_slots *slots, void *home, const struct jd_packet *packets, uint16_t count,
		  const uint8_t *headers);
/* Makes the driver give back what it has sent; -ENOTSUP where it does so by itself. */
int jd_tx_reclaim(uint16_t port, uint16_t queue);

/* For benchmarks: receives and sends what was received, as many bursts, with nothing in between. How many frames went. */
uint64_t jd_raw_loop(uint16_t port, uint16_t queue, uint64_t bursts);

/* Sleeping: a descriptor that is readable when a queue has frames, or -1. Armed before each sleep. */
int jd_rx_wait_fd(uint16_t port, uint16_t queue);
int jd_rx_wait_arm(uint16_t port, uint16_t queue, int on);

/* JD_RX_* of an mbuf's flags; for the shim's own files. */
uint16_t jd_rx_flags(uint64_t ol_flags);

#endif
