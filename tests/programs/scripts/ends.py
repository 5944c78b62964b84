"""How programs end, and what their children may do: `ends.py HOW HOST PORT`. The peer counts what it gets to the end of the connection."""
import errno
import os
import signal
import socket
import sys
import threading
import time

HOW, HOST, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
MUCH = b"z" * 3_000_000


def connected():
    return socket.create_connection((HOST, PORT), 10)


def sends_all():
    it = connected()
    it.settimeout(None)
    it.sendall(MUCH)
    return it


def returns():
    """What was sent arrives although the program ends at once."""
    sends_all()


def leaves():
    """The same without any of the things that are done at an ordinary end."""
    kept = sends_all()
    os._exit(kept.fileno() * 0)


def fails():
    kept = sends_all()
    raise SystemExit(3 + kept.fileno() * 0)


def waits():
    """A thread waits for what never comes while another ends the program; it is told nothing."""
    it = connected()

    def wait():
        try:
            print("got", it.recv(1), flush=True)
        except OSError as error:
            print("was told", error, flush=True)

    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.2)
    it.send(b"x")


def replaced():
    """With no socket open, another program takes the place of this one."""
    sends_all().close()
    sys.stdout.flush()
    os.execlp("echo", "echo", "replaced")


def replaced_while_connected():
    """Its connection is closed by that, and gets all that was sent."""
    it = sends_all()
    sys.stdout.flush()
    try:
        os.execl("/nowhere", "nowhere")
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
    it.send(b"still here")
    os.execlp("echo", "echo", "replaced")


def forked():
    """A child has files and may begin connections; its parent's are its parent's."""
    with connected() as it:
        it.send(b"one")
        child = os.fork()
        if child == 0:
            it.close()
            print("child", os.path.exists("/"), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        it.send(b"two")


def told_again_and_again():
    """SIGTERM, and again before it has ended, as from those that start and stop programs."""
    it = connected()
    it.sendall(b"0123456789")
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def terminated():
    """A handler for SIGTERM that ends the program in order, from a call that waits."""

    def handle(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, handle)
    with connected() as it:
        it.settimeout(None)
        it.sendall(b"ready")

        # From outside, at about the time at which timers of a connection are due.
        os.posix_spawnp("sh", ["sh", "-c", "sleep 0.195; kill -TERM $PPID"], os.environ)
        it.recv(1)


def replaced_with_sockets():
    """What does not work on Janus: to become another program with a connection open that it is to have too."""
    it = connected()
    it.set_inheritable(True)
    try:
        os.execlp("echo", "echo", "replaced")
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
    it.send(b"still here")


globals()[HOW]()
