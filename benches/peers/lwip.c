/* lwIP's raw API on one thread, as Debian builds it (NO_SYS=0). The stack's own thread is never started: `lwip_init` instead of
 * `tcpip_init` leaves all calls and timers to the caller, and no lock of the core is taken.
 *
 * Frames come in without a copy (custom pbufs), and go out without one (a reference is kept until the turn ends). */

#include <string.h>

#include <lwip/etharp.h>
#include <lwip/init.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/priv/tcp_priv.h>
#include <lwip/tcp.h>
#include <lwip/timeouts.h>
#include <netif/ethernet.h>

#define IN_MAX 256
#define SENT_MAX 8192
#define CONNS_MAX 64

/* Called with what a connection received. */
typedef void (*took_fn)(void *context, unsigned conn, const void *bytes, size_t len);

struct in {
    struct pbuf_custom custom; /* First: lwIP hands back its address. */
    struct in *next;
};

struct conn {
    struct tcp_pcb *pcb;
    u32_t address;
    u16_t port;
};

static struct netif wire;
static struct in ins[IN_MAX];
static struct in *in_free;
static struct pbuf *sent[SENT_MAX];
static unsigned sent_count;
static struct tcp_pcb *listener;
static int echoes;
static struct conn conns[CONNS_MAX];
static unsigned conn_count;
static took_fn took;
static void *took_context;

static void in_done(struct pbuf *p)
{
    struct in *in = (struct in *)p;
    in->next = in_free;
    in_free = in;
}

static err_t send_frame(struct netif *netif, struct pbuf *p)
{
    (void)netif;
    if (sent_count == SENT_MAX || p->len != p->tot_len)
        return ERR_BUF;
    pbuf_ref(p);
    sent[sent_count++] = p;
    return ERR_OK;
}

static err_t wire_init(struct netif *netif)
{
    static const u8_t mac[6] = {2, 0, 0, 0, 0, 1};
    netif->name[0] = 'w';
    netif->name[1] = 'i';
    netif->mtu = 1500;
    netif->hwaddr_len = 6;
    memcpy(netif->hwaddr, mac, 6);
    netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    netif->output = etharp_output;
    netif->linkoutput = send_frame;
    return ERR_OK;
}

static err_t echo(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    (void)arg;
    (void)err;
    if (p == NULL)
        return tcp_close(pcb);
    tcp_recved(pcb, p->tot_len);
    for (struct pbuf *piece = p; piece != NULL; piece = piece->next)
        if (tcp_write(pcb, piece->payload, piece->len, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            pbuf_free(p);
            tcp_abort(pcb);
            return ERR_ABRT;
        }
    pbuf_free(p);
    return ERR_OK;
}

static err_t stream(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    (void)err;
    if (p == NULL)
        return tcp_close(pcb);
    for (struct pbuf *piece = p; piece != NULL; piece = piece->next)
        took(took_context, (unsigned)((struct conn *)arg - conns), piece->payload, piece->len);
    tcp_recved(pcb, p->tot_len);
    pbuf_free(p);
    return ERR_OK;
}

static err_t accepted(void *arg, struct tcp_pcb *pcb, err_t err)
{
    (void)arg;
    if (err != ERR_OK || pcb == NULL)
        return ERR_VAL;
    tcp_nagle_disable(pcb);
    if (echoes) {
        tcp_recv(pcb, echo);
        return ERR_OK;
    }
    if (conn_count == CONNS_MAX)
        return ERR_MEM;
    struct conn *conn = &conns[conn_count++];
    conn->pcb = pcb;
    conn->address = lwip_ntohl(ip_2_ip4(&pcb->remote_ip)->addr);
    conn->port = pcb->remote_port;
    tcp_arg(pcb, conn);
    tcp_recv(pcb, stream);
    return ERR_OK;
}

/* Forgets the frames that were sent. */
void janus_lwip_end_turn(void)
{
    for (unsigned i = 0; i < sent_count; i++)
        pbuf_free(sent[i]);
    sent_count = 0;
}

/* Begins anew: no connections, a listener on port 80, and a question for the gateway's address as the only frame sent. */
int janus_lwip_start(int is_echo)
{
    static int is_begun;
    ip4_addr_t address, mask, gateway;
    IP4_ADDR(&address, 192, 0, 2, 1);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    IP4_ADDR(&gateway, 192, 0, 2, 2);
    if (!is_begun) {
        is_begun = 1;
        lwip_init();
        for (unsigned i = 0; i < IN_MAX; i++)
            in_done(&ins[i].custom.pbuf);
        if (netif_add(&wire, &address, &mask, &gateway, NULL, wire_init, ethernet_input) == NULL)
            return -1;
        netif_set_default(&wire);
        netif_set_up(&wire);
        struct tcp_pcb *pcb = tcp_new();
        if (pcb == NULL || tcp_bind(pcb, IP4_ADDR_ANY, 80) != ERR_OK)
            return -1;
        listener = tcp_listen(pcb);
        if (listener == NULL)
            return -1;
        tcp_accept(listener, accepted);
    }
    echoes = is_echo;
    conn_count = 0;
    while (tcp_active_pcbs != NULL) {
        tcp_abort(tcp_active_pcbs);
        janus_lwip_end_turn();
    }
    janus_lwip_end_turn();
    return etharp_request(&wire, &gateway) == ERR_OK ? 0 : -1;
}

/* Takes a frame in; its memory is no longer used afterwards. Returns whether that is so. */
int janus_lwip_input(const void *bytes, u16_t len)
{
    struct in *in = in_free;
    if (in == NULL)
        return 0;
    in_free = in->next;
    in->custom.custom_free_function = in_done;
    struct pbuf *p = pbuf_alloced_custom(PBUF_RAW, len, PBUF_REF, &in->custom, (void *)bytes, len);
    if (wire.input(p, &wire) != ERR_OK)
        pbuf_free(p);
    return in_free == in;
}

void janus_lwip_timers(void)
{
    sys_check_timeouts();
}

/* Returns frame number `at` of those sent in this turn, NULL behind the last. */
const void *janus_lwip_sent(unsigned at, size_t *len)
{
    if (at >= sent_count)
        return NULL;
    *len = sent[at]->len;
    return sent[at]->payload;
}

/* Names who is called with what comes. */
void janus_lwip_reader(took_fn to, void *context)
{
    took = to;
    took_context = context;
}

/* Returns how many streams are open. */
unsigned janus_lwip_conns(void)
{
    return conn_count;
}

void janus_lwip_peer(unsigned conn, u32_t *address, u16_t *port)
{
    *address = conns[conn].address;
    *port = conns[conn].port;
}

/* Writes what there is room for; returns how much that was. */
size_t janus_lwip_write(unsigned conn, const void *bytes, size_t len)
{
    struct tcp_pcb *pcb = conns[conn].pcb;
    size_t room = tcp_sndbuf(pcb);
    if (len > room)
        len = room;
    if (len == 0 || tcp_write(pcb, bytes, (u16_t)len, TCP_WRITE_FLAG_COPY) != ERR_OK)
        return 0;
    return len;
}

void janus_lwip_flush(unsigned conn)
{
    tcp_output(conns[conn].pcb);
}
