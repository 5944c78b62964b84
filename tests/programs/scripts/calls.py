"""Calls one by one against a peer that sends back what comes and ends when it is told `end`; prints what each came to."""
import array
import ctypes
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time

HOST, PORT = sys.argv[1], int(sys.argv[2])


def tell(name, call):
    try:
        print(name, call())
    except OSError as error:
        print(name, type(error).__name__, errno.errorcode.get(error.errno, error.errno))


def connected():
    """A connection whose calls wait."""
    it = socket.create_connection((HOST, PORT), 10)
    it.settimeout(None)
    return it


def echo(connection, text=b"abc"):
    connection.sendall(text)
    return connection.recv(len(text), socket.MSG_WAITALL)


def names():
    with connected() as it:
        return it.getpeername() == (HOST, PORT), it.getsockname()[1] > 0, it.family, it.type, it.fileno() > 2


def options():
    with connected() as it:
        it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        it.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        values = [
            it.getsockopt(level, name)
            for level, name in [
                (socket.IPPROTO_TCP, socket.TCP_NODELAY),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                (socket.SOL_SOCKET, socket.SO_TYPE),
                (socket.SOL_SOCKET, socket.SO_ERROR),
                (socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
            ]
        ]
        return [int(value != 0) for value in values]


def peek():
    with connected() as it:
        it.sendall(b"look")
        return it.recv(2, socket.MSG_PEEK), it.recv(4, socket.MSG_WAITALL)


def messages():
    with connected() as it:
        sent = it.sendmsg([b"ab", b"", b"cde"])
        first, second = bytearray(2), bytearray(3)
        while len(it.recv(5, socket.MSG_PEEK)) < 5:
            pass
        got = it.recvmsg_into([first, second])
        return sent, bytes(first), bytes(second), got[:3]


def duplicates():
    it = connected()
    other = it.dup()
    it.close()
    answer = echo(other)
    os.dup2(other.fileno(), 50)
    other.close()
    os.write(50, b"by number")
    got = os.read(50, 100)
    os.close(50)
    return answer, got


def numbers():
    """Numbers that the program chooses, and all others closed: none of them is anything but the program's."""
    it = connected()
    for number in range(20, 60):
        os.dup2(it.fileno(), number)
    for number in range(3, 1024):
        if number != it.fileno():
            try:
                os.close(number)
            except OSError:
                pass
    return echo(it), echo(connected())


def stdio():
    """A stream of the C library's for each direction, and one for both."""
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    it = connected()
    answers = []
    into = libc.fdopen(os.dup(it.fileno()), b"w")
    back = libc.fdopen(os.dup(it.fileno()), b"r")
    both = libc.fdopen(os.dup(it.fileno()), b"r+")
    line = ctypes.create_string_buffer(100)
    for writes, reads in [(into, back), (both, both), (into, both), (both, back), (both, both)]:
        libc.fputs(b"a line by stdio\n", ctypes.c_void_p(writes))
        flushed = libc.fflush(ctypes.c_void_p(writes))
        libc.fgets(line, 100, ctypes.c_void_p(reads))
        answers.append((flushed, line.value))
    answers.append(libc.fileno(ctypes.c_void_p(both)) > it.fileno())
    answers += [libc.fclose(ctypes.c_void_p(stream)) for stream in (into, back, both)]
    return answers, echo(it)


def timeout():
    with connected() as it:
        it.settimeout(0.05)
        try:
            it.recv(1)
        except TimeoutError as error:
            return str(error), echo(it)


def nonblocking():
    with connected() as it:
        it.setblocking(False)
        try:
            it.recv(1)
        except BlockingIOError as error:
            return errno.errorcode[error.errno]


def refused():
    return socket.create_connection((HOST, 7), 10)


def refused_later():
    with socket.socket() as it:
        it.setblocking(False)
        begun = errno.errorcode[it.connect_ex((HOST, 7))]
        poll = select.poll()
        poll.register(it, select.POLLOUT)
        [(_, events)] = poll.poll(10_000)
        return begun, events, errno.errorcode[it.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


def half_closed():
    with connected() as it:
        it.sendall(b"last")
        it.shutdown(socket.SHUT_WR)
        got = it.recv(10, socket.MSG_WAITALL)
        try:
            it.send(b"more")
        except BrokenPipeError:
            return got, "EPIPE"


def waiting():
    with connected() as it:
        it.sendall(b"x" * 1000)
        it.recv(1000, socket.MSG_PEEK | socket.MSG_WAITALL)
        number = array.array("i", [0])
        import fcntl

        fcntl.ioctl(it, 0x541B, number)
        return number[0]


def file_sent():
    with connected() as it, open(sys.argv[3], "rb") as file:
        sent = it.sendfile(file, 10, 200_000)
        got = it.recv(sent, socket.MSG_WAITALL)
        file.seek(10)
        return sent, got == file.read(200_000)


def alarmed():
    """A handler runs while a call waits, and the call goes on."""
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append("alarm"))
    with connected() as it:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        it.settimeout(None)
        later = subprocess.Popen(["sleep", "0.3"])
        while later.poll() is None and len(seen) < 3:
            select.select([it], [], [], 0.02)
        signal.setitimer(signal.ITIMER_REAL, 0)
        later.wait()
        return seen[:3], echo(it)


def interrupted():
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    signal.signal(signal.SIGALRM, stop)
    with connected() as it:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            it.settimeout(None)
            it.recv(1)
        except Stop:
            return "stopped", echo(it)


def storm():
    """Handlers that end a call, at every moment of its sleep, also when the core has just been awake for timers of its own."""

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    signal.signal(signal.SIGALRM, stop)
    stopped = 0
    with connected() as it:
        for at in range(60):
            echo(it, b"x" * 3000)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + at * 0.0008)
                it.recv(1)
            except Stop:
                stopped += 1
    with connected() as it, select.epoll() as epoll:
        epoll.register(it, select.EPOLLIN)
        for at in range(30):
            echo(it, b"x" * 3000)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + at * 0.0016)
                epoll.poll()
            except Stop:
                stopped += 1
    return stopped


def children():
    """Children of every kind are started while a connection is open, which is whole afterwards."""
    with connected() as it:
        before = echo(it, b"before")
        runs = [
            subprocess.run(["echo", "run"], capture_output=True, text=True).stdout,
            subprocess.run("echo shell; exit 3", shell=True, capture_output=True).returncode,
            subprocess.run(["cat"], input=b"fed", capture_output=True, close_fds=False).stdout,
            os.waitstatus_to_exitcode(os.system("exit 4")),
            os.popen("echo popen").read(),
            os.spawnlp(os.P_WAIT, "true", "true"),
        ]
        pid = os.posix_spawnp("sh", ["sh", "-c", "exit 5"], os.environ)
        runs.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        child = os.fork()
        if child == 0:
            os._exit(6)
        runs.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return before, runs, echo(it, b"after")


def mixed():
    """A pipe of the kernel's and sockets of both in one epoll instance."""
    reader, writer = os.pipe()
    near, far = socket.socketpair()
    with connected() as it, select.epoll() as epoll:
        for fd in [reader, near.fileno(), it.fileno()]:
            epoll.register(fd, select.EPOLLIN)
        none = epoll.poll(0)
        seen = []
        for wake, fd in [
            (lambda: os.write(writer, b"p"), reader),
            (lambda: far.send(b"s"), near.fileno()),
            (lambda: it.send(b"t"), it.fileno()),
        ]:
            wake()
            [(got, events)] = epoll.poll(10)
            seen.append((got == fd, events))
            os.read(fd, 10)
        epoll.unregister(it.fileno())
        return none, seen, epoll.poll(0)


def reset():
    it = connected()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    it.sendall(b"to nowhere")
    it.close()
    return "reset"


def many():
    all_of_them = [connected() for _ in range(200)]
    right = sum(echo(it, b"%d" % at) == b"%d" % at for at, it in enumerate(all_of_them))
    for it in all_of_them:
        it.close()
    return right


def end():
    with connected() as it:
        it.sendall(b"end")
        return it.recv(3)


for name in """names options peek messages duplicates numbers stdio timeout nonblocking refused refused_later half_closed waiting file_sent alarmed
        interrupted storm children mixed reset many end""".split():
    tell(name, globals()[name])
