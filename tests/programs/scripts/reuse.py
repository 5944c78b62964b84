"""Listens twice at a port, in two programs, with SO_REUSEPORT or without: `reuse.py HOST PORT`; with a third word it is the second program."""
import errno
import socket
import subprocess
import sys

host, port = sys.argv[1], int(sys.argv[2])


def listens(reuses):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuses)
    try:
        server.bind((host, port))
        server.listen()
    except OSError as error:
        server.close()
        print(errno.errorcode[error.errno], flush=True)
        return None
    print("listens", flush=True)
    return server


if len(sys.argv) > 3:
    listens(int(sys.argv[3]))
    sys.exit()

for first in [1, 0]:
    with listens(first):
        for second in ["1", "0"]:
            print(first, second, flush=True)
            subprocess.run([sys.executable, *sys.argv, second], check=True)
