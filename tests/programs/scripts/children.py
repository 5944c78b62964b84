"""Sockets that forked children make themselves, and what becomes of them: `children.py HOST PEER PORT`, where a server at PEER sends back what comes."""
import asyncio
import errno
import os
import resource
import select
import signal
import socket
import sys
import threading

_, host, peer, port = sys.argv
there = (peer, int(port))
CONTENT = bytes(range(256)) * 1000


def name(number):
    return errno.errorcode.get(number, number)


def there_and_back(connection):
    """A stream each way at the same time."""
    connection.setblocking(True)
    sender = threading.Thread(target=lambda: (connection.sendall(CONTENT), connection.shutdown(socket.SHUT_WR)))
    sender.start()
    with connection.makefile("rb") as stream:
        got = stream.read()
    sender.join()
    connection.close()
    return "right" if got == CONTENT else f"wrong: {len(got)} bytes"


def connects():
    """Blocking, with options, and names."""
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.settimeout(None)
    connection.connect(there)
    assert connection.getpeername() == there
    print(name(connection.connect_ex(there)), there_and_back(connection))


def connects_watched():
    """Without waiting, in an epoll instance from before on."""
    connection = socket.socket()
    connection.setblocking(False)
    with select.epoll() as poller:
        poller.register(connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        begun = connection.connect_ex(there)
        events = poller.poll(10)
        assert [fd for fd, _ in events] == [connection.fileno()] and events[0][1] & select.EPOLLOUT
        failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        print(name(begun), failed, there_and_back(connection))


def is_refused():
    nobody = (peer, 1)
    waits, does_not = socket.socket(), socket.socket()
    print(name(waits.connect_ex(nobody)))
    does_not.setblocking(False)
    begun = does_not.connect_ex(nobody)
    select.select([], [does_not], [], 10)
    print(name(begun), name(does_not.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))
    waits.close()
    does_not.close()


def listens():
    """At a port that is found for it, and to itself."""
    server = socket.create_server((host, 0))
    at = server.getsockname()
    assert at[0] == host and at[1] > 0
    with socket.socket() as second:
        try:
            second.bind(at)
        except OSError as error:
            print(name(error.errno))
    client = socket.create_connection(at)
    connection, address = server.accept()
    assert address == client.getsockname() and connection.getsockname() == at
    server.close()
    client.sendall(b"a client")
    print(connection.recv(100))
    connection.sendall(b"a server")
    print(client.recv(100))
    connection.close()
    print(client.recv(100))
    client.close()
    with socket.socket() as late:
        print(name(late.connect_ex(at)))


def connects_from_a_port():
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind((host, 7020))
        assert connection.getsockname() == (host, 7020)
        connection.connect(there)
        print(connection.getsockname()[1], there_and_back(connection))


def by_asyncio():
    async def one():
        reader, writer = await asyncio.open_connection(*there)
        writer.write(CONTENT)
        writer.write_eof()
        got = await reader.read()
        writer.close()
        return got == CONTENT

    async def all_at_once():
        return await asyncio.gather(*(one() for _ in range(20)))

    print(asyncio.run(all_at_once()))


def by_a_child_of_its_own():
    """Which has what it has, and makes others."""
    server = socket.create_server((host, 0))
    if (child := os.fork()) == 0:
        connection, _ = server.accept()
        connects()
        connection.sendall(b"served")
        os._exit(0)
    client = socket.create_connection(server.getsockname())
    server.close()
    print(client.recv(100), os.waitpid(child, 0)[1])


def limited():
    """As FTP servers limit their sessions."""
    limit = (200 << 20, 300 << 20)
    resource.setrlimit(resource.RLIMIT_AS, limit)
    assert resource.getrlimit(resource.RLIMIT_AS) == limit
    connects()
    resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 200 << 20))
    print(resource.getrlimit(resource.RLIMIT_AS), len(bytearray(50 << 20)))


def without_rights():
    """A child that is another user has no ports that are root's."""
    if (child := os.fork()) == 0:
        os.setgid(65534)
        os.setuid(65534)
        for port in [700, 7021]:
            with socket.socket() as server:
                try:
                    server.bind((host, port))
                    print(port, server.getsockname()[1])
                except OSError as error:
                    print(port, name(error.errno))
        sys.stdout.flush()
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1])


def in_a_child(*acts):
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        for act in acts:
            print(act.__name__, flush=True)
            act()
        sys.stdout.flush()
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1])


def is_told_to_end():
    """A child that waits, with a listener of its own and with its parent's."""
    for server in [socket.create_server((host, 0)), None]:
        reads, writes = os.pipe()
        if (child := os.fork()) == 0:
            own = server or socket.create_server((host, 0))
            os.write(writes, b"1")
            own.accept()
        os.read(reads, 1)
        # It is about to wait.
        threading.Event().wait(0.3)
        os.kill(child, signal.SIGTERM)
        print("ended by", os.waitpid(child, 0)[1])


ACTS = [connects, connects_watched, is_refused, listens, connects_from_a_port, by_asyncio, by_a_child_of_its_own, limited]

with socket.create_server((host, 7010)):
    in_a_child(*ACTS)
    is_told_to_end()
    sys.stdout.flush()
    without_rights()
# With nothing open in the parent.
in_a_child(*ACTS)
