"""The telephone switch: 40 calls at a time; of those that end, some were handed over to another desk (a second leg)."""
import random, socket, struct, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
rate, backlog = float(sys.argv[2]), int(sys.argv[3])
n = 0
def put(b): s.sendall(struct.pack(">H", len(b)) + b)
def frame(c, l): put(b"F" + struct.pack(">IB", c, l) + bytes(160))
def bye(c, l): put(b"B" + struct.pack(">IB", c, l))
live = []
def new():
    global n
    n += 1
    live.append([n, 1, time.monotonic() + random.uniform(2, 6)]); frame(n, 1)
def hand_over(c):
    c[1] = 2; frame(c[0], 2)
for _ in range(backlog):          # the busy morning
    new(); c = live.pop(); hand_over(c); bye(c[0], 2)
nxt = time.monotonic()
while True:
    now = time.monotonic()
    while nxt < now:
        nxt += 1 / rate; new()
        if random.random() < 0.5: hand_over(live[-1])
    for c in live: frame(c[0], c[1])
    for c in [c for c in live if c[2] < now]:
        live.remove(c); bye(c[0], c[1])
    time.sleep(0.1)
