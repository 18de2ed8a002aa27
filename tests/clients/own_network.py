"""Starts the calling program again in a network namespace that has nothing but its loopback interface, so that a client
and the server talk to each other alone."""

import fcntl
import os
import socket
import struct
import subprocess
import sys

INSIDE = "TESSERA_IN_NAMESPACE"


def enter():
    """Returns inside the namespace with "", or outside with the reason why there is none."""
    if os.environ.get(INSIDE):
        _raise_loopback()
        return ""
    command = ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else [])]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return "this system makes no network namespace: " + " ".join(command)
    os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def _raise_loopback():
    set_flags, up, running = 0x8914, 0x1, 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up | running))
