/* The shim: each function translates and calls; no state, no policy. */

#include "janus_dpdk.h"

#include <errno.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_memory.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

_Static_assert(sizeof(struct jd_frame) == 32, "mirrored in src/ffi.rs");
_Static_assert(sizeof(struct jd_port_info) == 60, "mirrored in src/ffi.rs");
_Static_assert(sizeof(struct jd_port_config) == 32, "mirrored in src/ffi.rs");
_Static_assert(sizeof(struct jd_stats) == 64, "mirrored in src/ffi.rs");

/* Calls that report through rte_errno. */
static int failed(void)
{
	return rte_errno > 0 ? -rte_errno : -EINVAL;
}

int jd_eal_init(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	return used < 0 ? failed() : used;
}

int jd_eal_cleanup(void)
{
	return rte_eal_cleanup();
}

int jd_thread_register(void)
{
	return rte_thread_register() < 0 ? failed() : 0;
}

void jd_thread_unregister(void)
{
	rte_thread_unregister();
}

const char *jd_version(void)
{
	return rte_version();
}

const char *jd_error_text(int error)
{
	return rte_strerror(error < 0 ? -error : error);
}

struct rte_mempool *jd_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t data_room, int socket, int *error)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create(name, count, cache, 0, data_room, socket);

	*error = pool == NULL ? failed() : 0;
	return pool;
}

void jd_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

uint32_t jd_pool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

uint32_t jd_pool_in_use(const struct rte_mempool *pool)
{
	return rte_mempool_in_use_count(pool);
}

int jd_frames_alloc(struct rte_mempool *pool, struct jd_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[JD_BURST_MAX];
	uint16_t i;
	int error;

	if (count > JD_BURST_MAX)
		return -EINVAL;
	error = rte_pktmbuf_alloc_bulk(pool, mbufs, count);
	if (error != 0)
		return error;
	for (i = 0; i < count; i++) {
		frames[i] = (struct jd_frame){
			.mbuf = mbufs[i],
			.data = rte_pktmbuf_mtod(mbufs[i], uint8_t *),
			.room = rte_pktmbuf_tailroom(mbufs[i]),
		};
	}
	return 0;
}

void jd_frames_free(const struct jd_frame *frames, uint16_t count)
{
	uint16_t i;

	for (i = 0; i < count; i++)
		rte_pktmbuf_free(frames[i].mbuf);
}

int jd_iova_is_va(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

int jd_memory_add(void *base, uint64_t len, uint64_t page)
{
	return rte_extmem_register(base, len, NULL, 0, page) < 0 ? failed() : 0;
}

int jd_memory_remove(void *base, uint64_t len)
{
	return rte_extmem_unregister(base, len) < 0 ? failed() : 0;
}

int jd_memory_map(uint16_t port, void *base, uint64_t len)
{
	struct rte_eth_dev_info dev;
	int error = rte_eth_dev_info_get(port, &dev);

	if (error != 0)
		return error;
	/* With physical addresses each mbuf has its own, and there is nothing to map. */
	if (!jd_iova_is_va() || dev.device == NULL)
		return 0;
	if (rte_dev_dma_map(dev.device, base, (uint64_t)(uintptr_t)base, len) == 0 || rte_errno == ENOTSUP)
		return 0;
	return failed();
}

int jd_device_add(const char *name)
{
	return rte_dev_probe(name);
}

int jd_device_remove(uint16_t port)
{
	struct rte_eth_dev_info dev;
	int error = rte_eth_dev_info_get(port, &dev);

	if (error != 0)
		return error;
	(void)rte_eth_dev_stop(port);
	error = rte_eth_dev_close(port);
	return error != 0 ? error : rte_dev_remove(dev.device);
}

int jd_rx_wait_fd(uint16_t port, uint16_t queue)
{
	/* That a driver has none is an answer, not an error to print. */
	const int type = rte_log_register("lib.ethdev");
	const int level = type < 0 ? 0 : rte_log_get_level(type);
	int fd;

	if (level > 0)
		rte_log_set_level(type, RTE_LOG_CRIT);
	fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
	if (level > 0)
		rte_log_set_level(type, level);
	return fd;
}

int jd_rx_wait_arm(uint16_t port, uint16_t queue, int on)
{
	return on ? rte_eth_dev_rx_intr_enable(port, queue) : rte_eth_dev_rx_intr_disable(port, queue);
}

uint16_t jd_port_count(void)
{
	return rte_eth_dev_count_avail();
}

int jd_port_by_name(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

static uint32_t offloads_of(const struct rte_eth_dev_info *info)
{
	const uint64_t rx_checksum = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
	/* What is cut needs new checksums, and comes as a chain. */
	const uint64_t tso = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM |
			     RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
	uint32_t offloads = 0;

	if ((info->rx_offload_capa & rx_checksum) == rx_checksum)
		offloads |= JD_OFFLOAD_RX_CHECKSUM;
	if (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH)
		offloads |= JD_OFFLOAD_RX_HASH;
	if (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM)
		offloads |= JD_OFFLOAD_TX_IP_CHECKSUM;
	if (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM)
		offloads |= JD_OFFLOAD_TX_TCP_CHECKSUM;
	if ((info->tx_offload_capa & tso) == tso)
		offloads |= JD_OFFLOAD_TX_TSO;
	if (info->flow_type_rss_offloads & RTE_ETH_RSS_NONFRAG_IPV4_TCP)
		offloads |= JD_OFFLOAD_RSS_TCP;
	return offloads;
}

int jd_port_info(uint16_t port, struct jd_port_info *info)
{
	struct rte_eth_dev_info dev;
	struct rte_ether_addr mac;
	int error = rte_eth_dev_info_get(port, &dev);

	if (error == 0)
		error = rte_eth_macaddr_get(port, &mac);
	if (error != 0)
		return error;
	memset(info, 0, sizeof(*info));
	if (dev.driver_name != NULL)
		strncpy(info->driver, dev.driver_name, sizeof(info->driver) - 1);
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	info->rx_queues_max = dev.max_rx_queues;
	info->tx_queues_max = dev.max_tx_queues;
	info->mtu_max = dev.max_mtu;
	info->hash_key_len = dev.hash_key_size;
	info->table_len = dev.reta_size;
	info->socket = (int16_t)rte_eth_dev_socket_id(port);
	info->offloads = offloads_of(&dev);
	info->chain_max = dev.tx_desc_lim.nb_seg_max;
	return rte_eth_dev_get_mtu(port, &info->mtu);
}

static struct rte_eth_conf to_conf(const struct jd_port_config *config, const struct rte_eth_dev_info *dev, uint32_t offloads)
{
	struct rte_eth_conf conf = { 0 };

	if (offloads & JD_OFFLOAD_RX_CHECKSUM)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
	if (offloads & JD_OFFLOAD_RX_HASH)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_RSS_HASH;
	if (offloads & JD_OFFLOAD_TX_IP_CHECKSUM)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	if (offloads & JD_OFFLOAD_TX_TCP_CHECKSUM)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
	if (offloads & JD_OFFLOAD_TX_TSO)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS |
					RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
	if ((offloads & JD_OFFLOAD_RSS_TCP) && config->rx_queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			(RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV6_TCP) & dev->flow_type_rss_offloads;
		if (config->hash_key != NULL) {
			conf.rx_adv_conf.rss_conf.rss_key = (uint8_t *)(uintptr_t)config->hash_key;
			conf.rx_adv_conf.rss_conf.rss_key_len = (uint8_t)config->hash_key_len;
		}
	}
	return conf;
}

static int queues_setup(uint16_t port, const struct jd_port_config *config, struct rte_mempool *const *pools)
{
	uint16_t rx_descriptors = config->rx_descriptors;
	uint16_t tx_descriptors = config->tx_descriptors;
	const int socket = rte_eth_dev_socket_id(port);
	uint16_t queue;
	int error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_descriptors, &tx_descriptors);

	for (queue = 0; error == 0 && queue < config->rx_queues; queue++)
		error = rte_eth_rx_queue_setup(port, queue, rx_descriptors, socket, NULL, pools[queue]);
	for (queue = 0; error == 0 && queue < config->tx_queues; queue++)
		error = rte_eth_tx_queue_setup(port, queue, tx_descriptors, socket, NULL);
	return error;
}

int jd_port_setup(uint16_t port, const struct jd_port_config *config, struct rte_mempool *const *pools, uint32_t *offloads)
{
	struct rte_eth_dev_info dev;
	struct rte_eth_conf conf;
	int error = rte_eth_dev_info_get(port, &dev);

	if (error != 0)
		return error;
	if (config->rx_queues > dev.max_rx_queues || config->tx_queues > dev.max_tx_queues)
		return -ERANGE;
	if (config->hash_key != NULL && dev.hash_key_size != 0 && config->hash_key_len != dev.hash_key_size)
		return -EINVAL;
	*offloads = config->offloads & offloads_of(&dev);
	conf = to_conf(config, &dev, *offloads);
	conf.intr_conf.rxq = config->interrupts;
	conf.intr_conf.lsc = (*dev.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
	error = rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
	if (error == 0 && config->mtu != 0)
		error = rte_eth_dev_set_mtu(port, config->mtu);
	if (error == 0)
		error = queues_setup(port, config, pools);
	if (error == 0 && config->promiscuous)
		error = rte_eth_promiscuous_enable(port);
	return error;
}

int jd_port_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int jd_port_stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

int jd_port_close(uint16_t port)
{
	return rte_eth_dev_close(port);
}

int jd_port_link(uint16_t port, uint32_t *mbit_per_s)
{
	struct rte_eth_link link;
	int error = rte_eth_link_get_nowait(port, &link);

	if (error != 0)
		return error;
	*mbit_per_s = link.link_speed;
	return link.link_status == RTE_ETH_LINK_UP;
}

int jd_port_stats(uint16_t port, struct jd_stats *stats)
{
	struct rte_eth_stats dev;
	int error = rte_eth_stats_get(port, &dev);

	if (error != 0)
		return error;
	*stats = (struct jd_stats){
		.rx_packets = dev.ipackets,
		.tx_packets = dev.opackets,
		.rx_bytes = dev.ibytes,
		.tx_bytes = dev.obytes,
		.rx_missed = dev.imissed,
		.rx_errors = dev.ierrors,
		.tx_errors = dev.oerrors,
		.rx_no_buffer = dev.rx_nombuf,
	};
	return 0;
}

int jd_port_stats_reset(uint16_t port)
{
	return rte_eth_stats_reset(port);
}

int jd_port_table_set(uint16_t port, const uint16_t *queues, uint16_t count)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	uint16_t i;

	if (count > RTE_ETH_RSS_RETA_SIZE_512)
		return -ERANGE;
	memset(table, 0, sizeof(table));
	for (i = 0; i < count; i++) {
		table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << (i % RTE_ETH_RETA_GROUP_SIZE);
		table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] = queues[i];
	}
	return rte_eth_dev_rss_reta_update(port, table, count);
}

uint16_t jd_rx_flags(uint64_t ol)
{
	uint16_t flags = 0;

	switch (ol & RTE_MBUF_F_RX_IP_CKSUM_MASK) {
	case RTE_MBUF_F_RX_IP_CKSUM_GOOD: flags |= JD_RX_IP_GOOD; break;
	case RTE_MBUF_F_RX_IP_CKSUM_BAD: flags |= JD_RX_IP_BAD; break;
	}
	switch (ol & RTE_MBUF_F_RX_L4_CKSUM_MASK) {
	case RTE_MBUF_F_RX_L4_CKSUM_GOOD: flags |= JD_RX_L4_GOOD; break;
	case RTE_MBUF_F_RX_L4_CKSUM_BAD: flags |= JD_RX_L4_BAD; break;
	case RTE_MBUF_F_RX_L4_CKSUM_NONE: flags |= JD_RX_L4_LEFT; break;
	}
	if (ol & RTE_MBUF_F_RX_RSS_HASH)
		flags |= JD_RX_HASH;
	return flags;
}

uint16_t jd_rx_burst(uint16_t port, uint16_t queue, struct jd_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[JD_BURST_MAX];
	uint16_t got, i;

	got = rte_eth_rx_burst(port, queue, mbufs, count < JD_BURST_MAX ? count : JD_BURST_MAX);
	for (i = 0; i < got; i++) {
		frames[i] = (struct jd_frame){
			.mbuf = mbufs[i],
			.data = rte_pktmbuf_mtod(mbufs[i], uint8_t *),
			.hash = mbufs[i]->hash.rss,
			.len = mbufs[i]->data_len,
			.flags = jd_rx_flags(mbufs[i]->ol_flags) | (mbufs[i]->nb_segs > 1 ? JD_RX_CHAINED : 0),
			.room = (uint16_t)(mbufs[i]->data_len + rte_pktmbuf_tailroom(mbufs[i])),
		};
	}
	return got;
}

uint64_t jd_raw_loop(uint16_t port, uint16_t queue, uint64_t bursts)
{
	struct rte_mbuf *mbufs[JD_BURST_MAX];
	uint64_t moved = 0;

	while (bursts-- > 0) {
		uint16_t got = rte_eth_rx_burst(port, queue, mbufs, JD_BURST_MAX);
		uint16_t sent = rte_eth_tx_burst(port, queue, mbufs, got);

		rte_pktmbuf_free_bulk(mbufs + sent, got - sent);
		moved += sent;
	}
	return moved;
}

static inline void tx_prepare(struct rte_mbuf *mbuf, const struct jd_frame *frame)
{
	uint64_t ol = 0;

	mbuf->data_len = frame->len;
	mbuf->pkt_len = frame->len;
	if (frame->flags & JD_TX_IP_CHECKSUM)
		ol |= RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_IPV4;
	if (frame->flags & JD_TX_TCP_CHECKSUM)
		ol |= RTE_MBUF_F_TX_TCP_CKSUM | ((frame->flags & JD_TX_IPV6) ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
	if (ol != 0) {
		mbuf->l2_len = frame->l2_len;
		mbuf->l3_len = frame->l3_len;
		mbuf->l4_len = frame->l4_len;
	}
	mbuf->ol_flags = ol;
}

uint16_t jd_tx_burst(uint16_t port, uint16_t queue, const struct jd_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[JD_BURST_MAX];
	uint16_t i;

	if (count > JD_BURST_MAX)
		count = JD_BURST_MAX;
	for (i = 0; i < count; i++) {
		mbufs[i] = frames[i].mbuf;
		tx_prepare(mbufs[i], &frames[i]);
	}
	return rte_eth_tx_burst(port, queue, mbufs, count);
}
