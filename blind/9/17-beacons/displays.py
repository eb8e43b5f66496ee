"""Displays: count the datagrams."""
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.settimeout(1)
with open(sys.argv[1], "w") as f:
    f.write(str(s.getsockname()[1]))
n, t = 0, time.monotonic()
while True:
    try:
        s.recv(2048)
        n += 1
    except socket.timeout:
        pass
    if time.monotonic() - t > 5:
        with open(sys.argv[2], "a") as f:
            f.write("datagrams %.1f/s\n" % (n / (time.monotonic() - t)))
        n, t = 0, time.monotonic()
