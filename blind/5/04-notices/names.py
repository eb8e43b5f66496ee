# two name servers: the first was taken out of service (nothing answers), the second answers with TTL 0; and the partners' hooks
import socket, sys, threading
first = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); first.bind(("127.0.0.1", 0))
second = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); second.bind(("127.0.0.1", 0))
hooks = socket.create_server(("127.0.0.1", 0), backlog=100)
def silent():
    while True:
        first.recvfrom(2000)
def answer():
    while True:
        q, a = second.recvfrom(2000)
        i = 12
        while q[i]: i += q[i] + 1
        i += 5
        rr = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x7f\x00\x00\x01" if q[i-4:i-2] == b"\0\1" else b""
        second.sendto(q[:2] + b"\x85\x80\0\1" + (b"\0\1" if rr else b"\0\0") + b"\0\0\0\0" + q[12:i] + rr, a)
threading.Thread(target=silent, daemon=True).start()
threading.Thread(target=answer, daemon=True).start()
open(sys.argv[1], "w").write("%d %d %d" % (first.getsockname()[1], second.getsockname()[1], hooks.getsockname()[1]))
def serve(c):
    f = c.makefile("rb")
    if f.readline(): c.sendall(b"OK\n")
    f.read(); c.close()
while True:
    c, _ = hooks.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
