"""Lifts: each of them sends the four kinds of values. At the start they send what they have kept."""
import random, socket, sys, time
port = int(sys.argv[1])
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(16)]
KINDS = ["door", "travel", "load", "vibration"]
def send(share):
    for i, c in enumerate(conns):
        c.sendall("".join("%d;%s;%.2f\n" % (l, k, random.uniform(1, 400)) for l in range(i * 20 + 1, i * 20 + 21) for k in KINDS if random.random() < share).encode())
for _ in range(170): send(1.0); time.sleep(0.06)
while True:
    t = time.monotonic(); send(0.25); time.sleep(max(0.0, 0.5 - (time.monotonic() - t)))
