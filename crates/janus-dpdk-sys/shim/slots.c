/* Slots: a pool of mbufs whose data lies in the caller's memory, one mbuf for each slot of it, for good. Drivers take
 * and return mbufs as of any pool; what they really take and return is the caller's slots, by the hooks. So a received
 * frame is in the caller's buffer and a sent one leaves from it, and nothing is copied. */

#include "janus_dpdk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_net.h>

_Static_assert(sizeof(struct jd_slot) == 16, "mirrored in src/ffi.rs");
_Static_assert(sizeof(struct jd_packet) == 24, "mirrored in src/ffi.rs");
_Static_assert(sizeof(struct jd_hooks) == 40, "mirrored in src/ffi.rs");

#define OPS "janus"

/* Headers of chains that drivers can hold at a time; where there are no more, packets go one by one. */
#define HEADERS 2047

/* Behind each mbuf, as its private area. */
struct note {
	void *home; /* not NULL: the slot is lent */
	struct jd_slot loan;
	uint32_t slot;
	uint16_t region;
	uint16_t reserved;
};

struct jd_slots {
	struct rte_mempool *pool;
	struct rte_mempool *headers; /* for those of chains: plain mbufs */
	char *first; /* the mbuf of slot 1 */
	size_t stride;
	struct jd_hooks hooks;
	char *base;
	size_t slot_size;
	uint32_t count;
	uint16_t region;
	uint16_t filled; /* the pool has its mbufs: from now on the hooks are asked */
	char *memory;
	size_t memory_len;
};

static struct note *note_of(struct rte_mbuf *mbuf)
{
	return rte_mbuf_to_priv(mbuf);
}

static struct rte_mbuf *mbuf_of(const struct jd_slots *slots, uint32_t slot)
{
	return (struct rte_mbuf *)(slots->first + (size_t)(slot - 1) * slots->stride);
}

static int ops_alloc(struct rte_mempool *pool)
{
	pool->pool_data = pool->pool_config;
	return 0;
}

static void ops_free(struct rte_mempool *pool)
{
	(void)pool;
}

static int ops_enqueue(struct rte_mempool *pool, void *const *objects, unsigned int count)
{
	struct jd_slots *slots = pool->pool_data;
	uint32_t free_slots[JD_BURST_MAX];
	unsigned int i, n = 0;

	if (!slots->filled)
		return 0;
	for (i = 0; i < count; i++) {
		struct note *note = note_of(objects[i]);
		void *home = note->home;

		if (home != NULL) {
			note->home = NULL;
			slots->hooks.finish(home, &note->loan);
			continue;
		}
		free_slots[n++] = note->slot;
		if (n == JD_BURST_MAX) {
			slots->hooks.give(slots->hooks.context, free_slots, n);
			n = 0;
		}
	}
	if (n > 0)
		slots->hooks.give(slots->hooks.context, free_slots, n);
	return 0;
}

static int ops_dequeue(struct rte_mempool *pool, void **objects, unsigned int count)
{
	struct jd_slots *slots = pool->pool_data;
	uint32_t taken[JD_BURST_MAX];
	unsigned int done = 0, i;

	/* A pool that is freed is emptied first, but the slots are not its. */
	if (!slots->filled)
		return -ENOBUFS;
	while (done < count) {
		const unsigned int n = count - done < JD_BURST_MAX ? count - done : JD_BURST_MAX;

		if (slots->hooks.take(slots->hooks.context, taken, n) != 0) {
			ops_enqueue(pool, objects, done);
			return -ENOBUFS;
		}
		for (i = 0; i < n; i++)
			objects[done + i] = mbuf_of(slots, taken[i]);
		done += n;
	}
	return 0;
}

static unsigned int ops_count(const struct rte_mempool *pool)
{
	const struct jd_slots *slots = pool->pool_data;

	return slots->hooks.available(slots->hooks.context);
}

static const struct rte_mempool_ops ops = {
	.name = OPS,
	.alloc = ops_alloc,
	.free = ops_free,
	.enqueue = ops_enqueue,
	.dequeue = ops_dequeue,
	.get_count = ops_count,
};

/* The last clone of an mbuf is gone. */
static void last_clone_gone(void *addr, void *opaque)
{
	struct rte_mbuf *mbuf = opaque;

	(void)addr;
	rte_mbuf_ext_refcnt_set(mbuf->shinfo, 1);
	mbuf->ol_flags = RTE_MBUF_F_EXTERNAL;
	mbuf->next = NULL;
	mbuf->nb_segs = 1;
	rte_mbuf_raw_free(mbuf);
}

static void init_mbuf(struct rte_mempool *pool, void *opaque, void *object, unsigned int index)
{
	struct jd_slots *slots = opaque;
	struct rte_mbuf *mbuf = object;
	struct note *note;

	memset(mbuf, 0, sizeof(*mbuf) + sizeof(*note) + sizeof(*mbuf->shinfo));
	mbuf->priv_size = sizeof(*note);
	mbuf->buf_len = (uint16_t)slots->slot_size;
	mbuf->buf_addr = slots->base + (size_t)index * slots->slot_size;
	mbuf->buf_iova = rte_eal_iova_mode() == RTE_IOVA_VA ? (rte_iova_t)(uintptr_t)mbuf->buf_addr :
							      rte_mem_virt2iova(mbuf->buf_addr);
	mbuf->data_off = RTE_PKTMBUF_HEADROOM;
	mbuf->pool = pool;
	mbuf->nb_segs = 1;
	mbuf->port = RTE_MBUF_PORT_INVALID;
	mbuf->ol_flags = RTE_MBUF_F_EXTERNAL;
	rte_mbuf_refcnt_set(mbuf, 1);
	mbuf->shinfo = RTE_PTR_ADD(mbuf, sizeof(*mbuf) + sizeof(*note));
	mbuf->shinfo->free_cb = last_clone_gone;
	mbuf->shinfo->fcb_opaque = mbuf;
	rte_mbuf_ext_refcnt_set(mbuf->shinfo, 1);
	note = note_of(mbuf);
	note->slot = index + 1;
	note->region = slots->region;
}

static int fill(struct jd_slots *slots)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = (uint16_t)slots->slot_size,
		.mbuf_priv_size = sizeof(struct note),
		.flags = RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF,
	};
	struct rte_mempool *pool = slots->pool;
	int error = rte_mempool_set_ops_byname(pool, OPS, slots);

	if (error != 0)
		return error;
	rte_pktmbuf_pool_init(pool, &private);
	slots->stride = pool->header_size + pool->elt_size + pool->trailer_size;
	slots->memory_len = slots->stride * slots->count + 4096;
	slots->memory = mmap(NULL, slots->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (slots->memory == MAP_FAILED) {
		slots->memory = NULL;
		return -errno;
	}
	error = rte_mempool_populate_iova(pool, slots->memory, RTE_BAD_IOVA, slots->memory_len, NULL, NULL);
	if (error < 0)
		return error;
	if (pool->populated_size != slots->count)
		return -ENOSPC;
	/* Laid out one after the other: a slot's number leads to its mbuf. */
	slots->first = (char *)(STAILQ_FIRST(&pool->elt_list) + 1);
	if (rte_mempool_obj_iter(pool, init_mbuf, slots) != slots->count)
		return -ENOSPC;
	if (note_of(mbuf_of(slots, slots->count))->slot != slots->count)
		return -EFAULT;
	slots->filled = 1;
	return 0;
}

static int register_ops(void)
{
	static int registered;
	int error;

	if (registered)
		return 0;
	error = rte_mempool_register_ops(&ops);
	registered = error >= 0;
	return error < 0 ? error : 0;
}

struct jd_slots *jd_slots_create(const char *name, const struct jd_slots_config *config, int *error)
{
	struct jd_slots *slots = calloc(1, sizeof(*slots));

	if (slots == NULL) {
		*error = -ENOMEM;
		return NULL;
	}
	*slots = (struct jd_slots){
		.hooks = config->hooks,
		.base = config->base,
		.slot_size = config->slot_size,
		.count = config->count,
		.region = config->region,
	};
	*error = register_ops();
	if (*error == 0) {
		slots->pool = rte_mempool_create_empty(name, config->count,
						       sizeof(struct rte_mbuf) + sizeof(struct note) + sizeof(struct rte_mbuf_ext_shared_info),
						       0, sizeof(struct rte_pktmbuf_pool_private), config->socket, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
		*error = slots->pool == NULL ? -(rte_errno > 0 ? rte_errno : ENOMEM) : fill(slots);
	}
	if (*error == 0) {
		char headers[RTE_MEMPOOL_NAMESIZE];

		snprintf(headers, sizeof(headers), "%s-headers", name);
		slots->headers = rte_pktmbuf_pool_create(headers, HEADERS, 0, 0, RTE_PKTMBUF_HEADROOM + JD_HEADERS_MAX, config->socket);
		if (slots->headers == NULL)
			*error = -(rte_errno > 0 ? rte_errno : ENOMEM);
	}
	if (*error != 0) {
		jd_slots_free(slots);
		return NULL;
	}
	return slots;
}

void jd_slots_free(struct jd_slots *slots)
{
	slots->filled = 0;
	rte_mempool_free(slots->pool);
	rte_mempool_free(slots->headers);
	if (slots->memory != NULL)
		munmap(slots->memory, slots->memory_len);
	free(slots);
}

struct rte_mempool *jd_slots_pool(const struct jd_slots *slots)
{
	return slots->pool;
}

/* What a driver gave that is no plain slot of ours to keep: a chain, a lent frame that came round by its pointer, an
 * mbuf of somebody else's pool. The latter two are copied into a slot of ours. */
static bool settle(struct jd_slots *slots, struct rte_mbuf **mbuf, struct jd_received *received)
{
	struct rte_mbuf *from = *mbuf, *copy;
	uint32_t slot;

	if (from->nb_segs > 1 || from->data_len > slots->slot_size - RTE_PKTMBUF_HEADROOM) {
		received->too_long++;
		rte_pktmbuf_free(from);
		return false;
	}
	if (slots->hooks.take(slots->hooks.context, &slot, 1) != 0) {
		received->no_buffer++;
		rte_pktmbuf_free(from);
		return false;
	}
	copy = mbuf_of(slots, slot);
	copy->data_off = RTE_PKTMBUF_HEADROOM;
	copy->data_len = from->data_len;
	copy->ol_flags = from->ol_flags | RTE_MBUF_F_EXTERNAL;
	copy->hash = from->hash;
	memcpy(rte_pktmbuf_mtod(copy, void *), rte_pktmbuf_mtod(from, void *), from->data_len);
	received->copied++;
	rte_pktmbuf_free(from);
	*mbuf = copy;
	return true;
}

static inline bool is_plain(const struct jd_slots *slots, struct rte_mbuf *mbuf)
{
	return (mbuf->pool == slots->pool || mbuf->pool->ops_index == slots->pool->ops_index) && note_of(mbuf)->home == NULL &&
	       mbuf->nb_segs == 1;
}

uint16_t jd_slots_receive(uint16_t port, uint16_t queue, struct jd_slots *slots, struct jd_packet *packets, uint16_t count,
			  struct jd_received *received)
{
	struct rte_mbuf *mbufs[JD_BURST_MAX];
	uint16_t got, i, n = 0;

	got = rte_eth_rx_burst(port, queue, mbufs, count < JD_BURST_MAX ? count : JD_BURST_MAX);
	for (i = 0; i < got; i++) {
		struct rte_mbuf *mbuf = mbufs[i];

		if (unlikely(!is_plain(slots, mbuf)) && !settle(slots, &mbuf, received))
			continue;
		packets[n++] = (struct jd_packet){
			.frame = {
				.slot = note_of(mbuf)->slot,
				.region = note_of(mbuf)->region,
				.off = mbuf->data_off,
				.len = mbuf->data_len,
			},
			.hash = mbuf->hash.rss,
			.flags = jd_rx_flags(mbuf->ol_flags),
		};
	}
	received->frames += got;
	return n;
}

static inline void prepare(struct rte_mbuf *mbuf, const struct jd_packet *packet, void *home)
{
	struct note *note = note_of(mbuf);

	mbuf->data_off = packet->frame.off;
	mbuf->data_len = packet->frame.len;
	mbuf->pkt_len = packet->frame.len;
	mbuf->nb_segs = 1;
	mbuf->next = NULL;
	mbuf->ol_flags = RTE_MBUF_F_EXTERNAL;
	if (packet->flags & JD_LENT) {
		note->home = home;
		note->loan = packet->frame;
	}
	if (packet->flags & JD_TX_TCP_CHECKSUM) {
		mbuf->l2_len = packet->l2_len;
		mbuf->l3_len = packet->l3_len;
		mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | ((packet->flags & JD_TX_IPV6) ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
		/* Devices add the segment to what they find in the checksum's place: the pseudo header. */
		rte_net_intel_cksum_flags_prepare(mbuf, mbuf->ol_flags);
	}
}

/* The payload of several packets behind headers in an mbuf of DPDK's own, which the device writes anew for each segment that
 * it cuts. Each packet stays an mbuf of its own, given back by itself. NULL: no mbuf for the headers. */
static struct rte_mbuf *chain(struct jd_slots *slots, const struct jd_packet *packets, uint16_t count, void *home, const uint8_t *headers)
{
	const struct jd_packet *first = &packets[0];
	struct rte_mbuf *head = rte_pktmbuf_alloc(slots->headers), *last = head;
	uint16_t i;

	if (head == NULL)
		return NULL;
	head->l2_len = first->l2_len;
	head->l3_len = first->l3_len;
	head->l4_len = (first->hash >> 16) & 0xff;
	head->tso_segsz = first->hash & 0xffff;
	head->data_len = head->l2_len + head->l3_len + head->l4_len;
	head->pkt_len = head->data_len;
	head->ol_flags = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM |
			 ((first->flags & JD_TX_IPV6) ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM);
	memcpy(rte_pktmbuf_mtod(head, void *), headers, head->data_len);
	/* The sum of the pseudo header without the length, which differs from segment to segment. */
	rte_net_intel_cksum_flags_prepare(head, head->ol_flags);
	for (i = 0; i < count; i++) {
		struct rte_mbuf *next = mbuf_of(slots, packets[i].frame.slot);
		struct jd_packet plain = packets[i];

		plain.flags &= JD_LENT;
		prepare(next, &plain, home);
		next->data_off += head->data_len;
		next->data_len -= head->data_len;
		head->pkt_len += next->data_len;
		head->nb_segs++;
		last->next = next;
		last = next;
	}
	return head;
}

/* A packet that the driver did not take is as if it had never been an mbuf. */
static void take_back(struct jd_slots *slots, const struct jd_packet *packet)
{
	struct rte_mbuf *mbuf = mbuf_of(slots, packet->frame.slot);

	note_of(mbuf)->home = NULL;
	mbuf->nb_segs = 1;
	mbuf->next = NULL;
}

int jd_slots_transmit(uint16_t port, uint16_t queue, struct jd_slots *slots, void *home, const struct jd_packet *packets, uint16_t count,
		  const uint8_t *headers)
{
	struct rte_mbuf *mbufs[JD_BURST_MAX];
	uint16_t ends[JD_BURST_MAX]; /* of each mbuf: the packets up to its last */
	uint16_t flags = 0, n = 0, fit, sent = 0, done, i = 0;

	if (count > JD_BURST_MAX)
		count = JD_BURST_MAX;
	while (i < count) {
		const uint16_t asked = packets[i].hash >> 24;
		uint16_t length = 1;

		mbufs[n] = NULL;
		if (headers != NULL && (packets[i].flags & JD_TX_TSO)) {
			if (asked > 1 && asked <= count - i)
				mbufs[n] = chain(slots, &packets[i], asked, home, headers);
			headers += JD_HEADERS_MAX;
		}
		if (mbufs[n] != NULL) {
			length = asked;
		} else {
			mbufs[n] = mbuf_of(slots, packets[i].frame.slot);
			prepare(mbufs[n], &packets[i], home);
		}
		flags |= packets[i].flags;
		i += length;
		ends[n++] = i;
	}
	fit = flags & JD_TX_TCP_CHECKSUM ? rte_eth_tx_prepare(port, queue, mbufs, n) : n;
	if (fit > 0)
		sent = rte_eth_tx_burst(port, queue, mbufs, fit);
	done = sent == 0 ? 0 : ends[sent - 1];
	for (i = done; i < count; i++)
		take_back(slots, &packets[i]);
	for (i = sent; i < n; i++) {
		if (mbufs[i]->pool != slots->headers)
			continue;
		mbufs[i]->nb_segs = 1;
		mbufs[i]->next = NULL;
		rte_pktmbuf_free_seg(mbufs[i]);
	}
	return sent == 0 && fit == 0 && count > 0 ? -EINVAL : done;
}

int jd_tx_reclaim(uint16_t port, uint16_t queue)
{
	return rte_eth_tx_done_cleanup(port, queue, 0);
}
