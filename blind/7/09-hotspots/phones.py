"""Phones pass by the antennas. Most show a new random address each time they come."""
import collections, random, socket, sys, time
port, rate, before = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(25)]
residents = ["02:%010x" % random.getrandbits(40) for _ in range(4000)]
here = collections.deque()
def step(n, stay):
    out = [[] for _ in conns]
    for _ in range(n):
        a = random.randrange(25)
        i = random.choice(residents) if random.random() < 0.05 else "%012x-%08x" % (random.getrandbits(48), random.getrandbits(32))
        out[a].append("+ %d %s\n" % (a, i)); here.append((a, i))
    while len(here) > stay:
        a, i = here.popleft(); out[a].append("- %d %s\n" % (a, i))
    for c, o in zip(conns, out):
        if o: c.sendall("".join(o).encode())
for _ in range(before // 4000): step(4000, 5000); time.sleep(0.05)   # the days before
while True:
    t = time.monotonic(); step(rate // 10, 5000); time.sleep(max(0.0, 0.1 - (time.monotonic() - t)))
