"""Sends back what comes, by each of the ways in which Python waits: `echo.py serve WAY HOST PORT CONNECTIONS`, `echo.py ask ...`."""
import asyncio
import ctypes
import errno
import hashlib
import os
import select
import selectors
import signal
import socket
import socketserver
import subprocess
import sys
import threading

SIZES = [1, 10, 1000, 100_000, 300_000]


def content(number):
    return b"".join(bytes([number + 1]) * size for size in SIZES)


def listening():
    print("listening", flush=True)


# Servers: each ends when so many connections have come to their end.


def serve_blocking(host, port, count):
    """One thread for each connection."""

    def one(connection):
        with connection:
            while piece := connection.recv(65536):
                connection.sendall(piece)

    with socket.create_server((host, port), backlog=64) as server:
        threads = []
        listening()
        for _ in range(count):
            connection, _ = server.accept()
            threads.append(threading.Thread(target=one, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()


class Select:
    """select(2) by the methods of a poll object."""

    def __init__(self):
        self.reads, self.writes = set(), set()

    def register(self, fd, events):
        self.unregister(fd)
        if events & select.POLLIN:
            self.reads.add(fd)
        if events & select.POLLOUT:
            self.writes.add(fd)

    modify = register

    def unregister(self, fd):
        self.reads.discard(fd)
        self.writes.discard(fd)

    def poll(self):
        reads, writes, _ = select.select(self.reads, self.writes, [])
        ready = {}
        for fd in reads:
            ready[fd] = select.POLLIN
        for fd in writes:
            ready[fd] = ready.get(fd, 0) | select.POLLOUT
        return list(ready.items())


def serve_by(poller, host, port, count):
    """One thread, and sockets that do not block."""
    server = socket.create_server((host, port), backlog=64)
    server.setblocking(False)
    poller.register(server.fileno(), select.POLLIN)
    open_ones = {}
    listening()
    while count:
        for fd, events in poller.poll():
            if fd == server.fileno():
                try:
                    connection, _ = server.accept()
                except BlockingIOError:
                    continue
                connection.setblocking(False)
                open_ones[connection.fileno()] = (connection, bytearray())
                poller.register(connection.fileno(), select.POLLIN)
                continue
            connection, owed = open_ones[fd]
            if events & ~select.POLLOUT:
                try:
                    piece = connection.recv(65536)
                except BlockingIOError:
                    piece = None
                if piece == b"":
                    connection.setblocking(True)
                    connection.sendall(owed)
                    poller.unregister(fd)
                    connection.close()
                    del open_ones[fd]
                    count -= 1
                    continue
                owed += piece or b""
            if owed:
                try:
                    del owed[: connection.send(owed)]
                except BlockingIOError:
                    pass
            poller.modify(fd, select.POLLIN | (select.POLLOUT if owed else 0))
    server.close()


def serve_selectors(host, port, count):
    """The selector that Python chooses, epoll here."""
    with selectors.DefaultSelector() as selector, socket.create_server((host, port)) as server:
        selector.register(server, selectors.EVENT_READ)
        listening()
        while count:
            for key, _ in selector.select():
                if key.fileobj is server:
                    connection, _ = server.accept()
                    selector.register(connection, selectors.EVENT_READ)
                elif piece := key.fileobj.recv(65536):
                    key.fileobj.sendall(piece)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    count -= 1


def serve_asyncio(host, port, count):
    async def main():
        left, done = count, asyncio.Event()

        async def one(reader, writer):
            nonlocal left
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            left -= 1
            if not left:
                done.set()

        async with await asyncio.start_server(one, host, port):
            listening()
            await done.wait()

    asyncio.run(main())


def serve_socketserver(host, port, count):
    class Echo(socketserver.StreamRequestHandler):
        def handle(self):
            while piece := self.rfile.read1(65536):
                self.wfile.write(piece)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = False
        request_queue_size = 64

    with Server((host, port), Echo) as server:
        listening()
        for _ in range(count):
            server.handle_request()


def serve_forking(host, port, count):
    """A child for each connection, which the parent closes at once."""

    class Echo(socketserver.StreamRequestHandler):
        def handle(self):
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert self.request.getpeername() == self.client_address
            assert self.request.getsockname() == self.server.server_address
            while piece := self.rfile.read1(65536):
                self.wfile.write(piece)

    class Server(socketserver.ForkingTCPServer):
        allow_reuse_address = True
        request_queue_size = 64

    with Server((host, port), Echo) as server:
        listening()
        for _ in range(count):
            server.handle_request()


def echo_to_the_end(connection):
    while piece := connection.recv(65536):
        connection.sendall(piece)
    connection.close()


def serve_cloned(host, port, count):
    """A child for each connection, in a namespace of its own, by the kernel's call."""
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    new_uts = 0x04000000
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(0)] * 4
    with socket.create_server((host, port), backlog=64) as server:
        listening()
        ours = os.readlink("/proc/self/ns/uts")
        # More namespaces than a child may have.
        refused = libc.syscall(number, ctypes.c_long(0x70000 | signal.SIGCHLD), *words)
        assert refused == -1 and ctypes.get_errno() == errno.EINVAL
        for _ in range(count):
            connection, _ = server.accept()
            flags = ctypes.c_long(new_uts | signal.SIGCHLD)
            if libc.syscall(number, flags, *words) == 0:
                echo_to_the_end(connection)
                os._exit(os.readlink("/proc/self/ns/uts") == ours)
            connection.close()
        print("ended", [os.wait()[1] for _ in range(count)])


def serve_mapped(host, port, count):
    """A socket for both families at an address of IPv4, as Java has them."""
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::ffff:" + host, port))
        server.listen(64)
        print(server.getsockname())
        listening()
        for _ in range(count):
            connection, peer = server.accept()
            assert peer[0].startswith("::ffff:")
            threading.Thread(target=echo_to_the_end, args=[connection]).start()


def serve_bound(host, port, count):
    """The parent binds, its children listen, one after the other, and accept."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        said, says = os.pipe()
        children = []
        for _ in range(2):
            if (child := os.fork()) == 0:
                before = server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                server.listen(64)
                after = server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                assert server.getsockname() == (host, port)
                os.write(says, b"%d%d " % (before, after))
                for _ in range(count // 2):
                    connection, peer = server.accept()
                    assert connection.getpeername() == peer
                    echo_to_the_end(connection)
                os._exit(0)
            children.append(child)
            print(os.read(said, 10))
        listening()
        print("ended", [os.waitpid(child, 0)[1] for child in children])


def serve_programs(host, port, count):
    """A program for each connection, whose standard input and output it is."""
    with socket.create_server((host, port), backlog=64) as server:
        listening()
        programs = []
        for _ in range(count):
            connection, _ = server.accept()
            with connection:
                programs.append(subprocess.Popen(["cat"], stdin=connection, stdout=connection))
        for program in programs:
            assert program.wait() == 0


def serve_sent(host, port, count):
    """Connections go to a process that was there before them."""
    here, there = socket.socketpair()
    if not (worker := os.fork()):
        here.close()
        for _ in range(count):
            _, fds, _, _ = socket.recv_fds(there, 1, 1)
            with socket.socket(fileno=fds[0]) as connection:
                while piece := connection.recv(65536):
                    connection.sendall(piece)
        os._exit(0)
    there.close()
    with socket.create_server((host, port), backlog=64) as server:
        listening()
        for _ in range(count):
            connection, _ = server.accept()
            with connection:
                socket.send_fds(here, [b"1"], [connection.fileno()])
    assert os.waitpid(worker, 0)[1] == 0


# Clients: each connection sends its content and compares what comes back.


def judge(number, got):
    right = hashlib.sha256(got).digest() == hashlib.sha256(content(number)).digest()
    return f"{number}: {len(got)} bytes, {'right' if right else 'wrong'}"


def ask_blocking(host, port, count):
    """A thread that sends and one that receives, for each connection."""
    answers = [None] * count

    def one(number):
        with socket.create_connection((host, port)) as connection:
            sender = threading.Thread(
                target=lambda: (connection.sendall(content(number)), connection.shutdown(socket.SHUT_WR))
            )
            sender.start()
            with connection.makefile("rb") as stream:
                answers[number] = judge(number, stream.read())
            sender.join()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def ask_by(poller, host, port, count):
    """All connections at once, begun without waiting."""
    asked, answers = {}, [None] * count
    for number in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((host, port))
        asked[connection.fileno()] = (number, connection, memoryview(content(number)), bytearray())
        poller.register(connection.fileno(), select.POLLOUT)
    while asked:
        for fd, events in poller.poll():
            number, connection, left, got = asked[fd]
            if left and events & select.POLLOUT:
                try:
                    left = left[connection.send(left) :]
                except BlockingIOError:
                    pass
                if not left:
                    connection.shutdown(socket.SHUT_WR)
                asked[fd] = (number, connection, left, got)
            if events & ~select.POLLOUT:
                piece = connection.recv(65536)
                got += piece
                if not piece:
                    answers[number] = judge(number, bytes(got))
                    poller.unregister(fd)
                    connection.close()
                    del asked[fd]
                    continue
            poller.modify(fd, select.POLLIN | (select.POLLOUT if left else 0))
    return answers


def ask_asyncio(host, port, count):
    async def one(number):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(content(number))
        writer.write_eof()
        got = await reader.read()
        writer.close()
        return judge(number, got)

    async def main():
        return await asyncio.gather(*(one(number) for number in range(count)))

    return asyncio.run(main())


SERVERS = {
    "blocking": serve_blocking,
    "select": lambda *where: serve_by(Select(), *where),
    "poll": lambda *where: serve_by(select.poll(), *where),
    "epoll": lambda *where: serve_by(select.epoll(), *where),
    "selectors": serve_selectors,
    "asyncio": serve_asyncio,
    "socketserver": serve_socketserver,
    "forking": serve_forking,
    "cloned": serve_cloned,
    "bound": serve_bound,
    "mapped": serve_mapped,
    "programs": serve_programs,
    "sent": serve_sent,
}
CLIENTS = {
    "blocking": ask_blocking,
    "select": lambda *where: ask_by(Select(), *where),
    "poll": lambda *where: ask_by(select.poll(), *where),
    "epoll": lambda *where: ask_by(select.epoll(), *where),
    "asyncio": ask_asyncio,
}

_, verb, way, host, port, count = sys.argv
if verb == "serve":
    SERVERS[way](host, int(port), int(count))
    print("served")
else:
    print("\n".join(CLIENTS[way](host, int(port), int(count))))
