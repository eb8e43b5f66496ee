"""The data warehouse's loader: takes a page, needs 15..25 ms for it."""
import socket, struct, sys, threading, time, random

def serve(c):
    f = c.makefile("rb")
    while True:
        h = f.read(4)
        if len(h) < 4:
            return
        f.read(struct.unpack(">I", h)[0])
        time.sleep(random.uniform(0.015, 0.025))
        c.sendall(b"\0\0\0\2ok")

s = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1], "w") as f:
    f.write(str(s.getsockname()[1]))
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
