"""The tunnel between the sites: a TCP relay of limited bandwidth in the direction to the other site."""
import socket, sys, threading, time

target, rate, portfile = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def pump(a, b, limit):
    try:
        while True:
            d = a.recv(16384)
            if not d:
                break
            b.sendall(d)
            if limit:
                time.sleep(len(d) / limit)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
l.bind(("127.0.0.1", 0))
l.listen(8)
with open(portfile, "w") as f:
    f.write(str(l.getsockname()[1]))
while True:
    c, _ = l.accept()
    t = socket.create_connection(("127.0.0.1", target))
    threading.Thread(target=pump, args=(c, t, rate), daemon=True).start()
    threading.Thread(target=pump, args=(t, c, 0), daemon=True).start()
