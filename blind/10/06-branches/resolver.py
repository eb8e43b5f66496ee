"""The name server of the cluster: answers with at most three addresses."""
import os, random, socket, sys

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
open(sys.argv[1] + ".new", "w").write(str(s.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    q, peer = s.recvfrom(2048)
    e = q.index(b"\0", 12) + 5
    some = random.sample(range(1, 6), 3)
    a = b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + bytes([127, 0, 1, i]) for i in some)
    s.sendto(q[:2] + b"\x81\x80\0\1" + len(some).to_bytes(2, "big") + b"\0\0\0\0" + q[12:e] + a, peer)
