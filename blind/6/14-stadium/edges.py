"""Edge servers: 30000 see the final, some thousand other matches; people come and go all the time."""
import collections, random, socket, sys, time
port, per_second, report = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
here = [collections.deque() for _ in conns]
n = 0
def join(k, match):
    global n
    n += 1; here[k].append(n)
    return "join %d %s\n" % (n, match)
def some(): return "final" if random.random() < 0.85 else "m%d" % random.randrange(200)
for _ in range(30000 // 400):
    for k, c in enumerate(conns): c.sendall("".join(join(k, some()) for _ in range(100)).encode())
    time.sleep(0.05)
open(report, "w").close()
while True:
    t = time.monotonic()
    for k, c in enumerate(conns):
        out = []
        for _ in range(per_second // 40):
            here[k].rotate(-random.randrange(50))
            out.append("leave %d\n" % here[k].popleft()); out.append(join(k, some()))
        c.sendall("".join(out).encode())
    time.sleep(max(0.0, 0.1 - (time.monotonic() - t)))
