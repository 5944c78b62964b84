# A server that ends, or becomes another program, while its connections are used: afterlife.py HOW ADDRESS PORT
import array
import os
import selectors
import signal
import socket
import sys


def line(connection):
    said = b""
    while not said.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            return said
        said += piece
    return said


def answers(connection, name):
    said = line(connection)
    if said:
        connection.sendall(name + b" has " + said)
    return bool(said)


def listens(at):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(at)
    listener.listen()
    print("listening", flush=True)
    return listener


# It becomes another program, which has the connection, and one that waits to be accepted.
def replaced(at):
    listener = listens(at)
    first, _ = listener.accept()
    answers(first, b"the first program")
    sys.stdin.readline()
    for kept in (listener, first):
        kept.set_inheritable(True)
    numbers = [str(kept.fileno()) for kept in (listener, first)]
    os.execv(sys.executable, [sys.executable, __file__, "replaces", *numbers])


def replaces(listener, first):
    listener, first = socket.socket(fileno=int(listener)), socket.socket(fileno=int(first))
    print("replaced", first.getsockname(), listener.getsockname(), flush=True)
    for other in (first, None, None):
        other = other or listener.accept()[0]
        while answers(other, b"the second program"):
            pass
        other.close()


# Its child serves two at once, and has them for itself: its parent may be killed.
def works(at):
    listener = listens(at)
    if os.fork():
        signal.pause()
    first, _ = listener.accept()
    first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers(first, b"a worker")
    both = selectors.DefaultSelector()
    both.register(first, selectors.EVENT_READ, "first")
    second, _ = listener.accept()
    both.register(second, selectors.EVENT_READ, "second")
    asked = 0
    while both.get_map():
        for key, _ in both.select():
            it, name = key.fileobj, key.data
            asked += 1
            state = (name, it.getsockname(), it.gettimeout(), it.get_inheritable())
            # Of one that is carried it is never told.
            nodelay = asked > 40 and it.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            if not answers(it, f"{state} {nodelay}".encode()):
                both.unregister(it)
                it.close()


# Its child and a child of that take turns at a connection, once the first has more of them.
def works_together(at):
    listener = listens(at)
    if child := os.fork():
        os.waitpid(child, 0)
        return
    first, _ = listener.accept()
    answers(first, b"a worker")
    second, _ = listener.accept()
    mine, its = socket.socketpair()
    name, turns = (b"a worker", mine) if os.fork() else (b"its child", its)
    if name == b"its child":
        turns.recv(1)
    while answers(first, name):
        turns.send(b".")
        turns.recv(1)
    turns.send(b".")


# A child for each connection: its parent may be killed once the connection has lasted.
def forks(at):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = listens(at)
    while True:
        connection, peer = listener.accept()
        if not os.fork():
            listener.close()
            while answers(connection, b"a child"):
                assert connection.getpeername() == peer
            os._exit(0)
        connection.close()


# Its child claims a connection as the library does, and takes it in none of these ways.
def claims(at):
    listener = listens(at)
    # The parent has it too, and it stays where it is.
    kept, _ = listener.accept()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    for at in range(3):
        said = line(kept)
        assert "LD_PRELOAD" not in os.environ or claim_in_vain(kept, 1) == 0
        kept.sendall(b"both have " + said)
    first, _ = listener.accept()
    met = 0
    for at in range(40):
        said = line(first)
        if "LD_PRELOAD" in os.environ:
            met += claim_in_vain(first, at)
        first.sendall(b"a child has " + said)
        # To TCP it is a message like others.
        if at == 20:
            rights = array.array("i", os.pipe())
            first.sendmsg([b"with a pipe\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    assert not answers(first, b"a child")
    assert met > 10 or "LD_PRELOAD" not in os.environ, met


# How often it was given.
def claim_in_vain(connection, at):
    met = 0
    lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(1 + at % 2)]
    for mine, theirs in lines:
        mine.bind(b"\0janus-claim/" + os.urandom(12))
        rights = array.array("i", [theirs.fileno()])
        connection.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        theirs.close()
    for mine, _ in lines:
        if at % 3:
            told = mine.recv(9000)
            is_met = told[0] == 2
            assert is_met and len(told) > 100 or told in (b"\0", b"\1"), told
            met += is_met
            if is_met and at % 3 == 2:
                mine.send(b"what?")
        mine.close()
    return met


# Its child goes on with the connection.
def leaves(at):
    listener = listens(at)
    first, _ = listener.accept()
    answers(first, b"the parent")
    listener.close()
    if os.fork():
        os._exit(0)
    os.close(1)
    os.close(2)
    while answers(first, b"the child"):
        pass


# A child has it, and has not touched it when its parent ends.
def leaves_later(at):
    listener = listens(at)
    first, _ = listener.accept()
    listener.close()
    if os.fork():
        return
    os.close(1)
    os.close(2)
    sys.stdin.readline()
    while answers(first, b"the child"):
        pass


# Another process has been sent it.
def sends(at):
    listener = listens(at)
    here, there = socket.socketpair()
    if not os.fork():
        listener.close()
        here.close()
        os.close(1)
        os.close(2)
        _, control, _, _ = there.recvmsg(1, 64)
        first = socket.socket(fileno=array.array("i", control[0][2])[0])
        while answers(first, b"who was sent it"):
            pass
        os._exit(0)
    first, _ = listener.accept()
    here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [first.fileno()]))])


# It says which number it would get next, and closes all that it was not given. Whatever number it gets it can close.
def numbers(at):
    listener = listens(at)
    first, _ = listener.accept()
    while line(first):
        for more in [os.dup(0) for _ in range(500)]:
            os.close(more)
        number = os.dup(0)
        os.closerange(number, 4096)
        first.sendall(b"%d\n" % number)


# As one that begins where another has ended.
def serves(at):
    listener = listens(at)
    first, _ = listener.accept()
    while answers(first, b"the next server"):
        pass


how = sys.argv[1]
if how == "replaces":
    replaces(*sys.argv[2:])
else:
    globals()[how]((sys.argv[2], int(sys.argv[3])))
