"""Columns of 30 car parks, 1000 places each: all report at the full two seconds, once a minute everything."""
import random, socket, sys, time
port = int(sys.argv[1])
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
state = [random.random() < 0.6 for _ in range(30001)]
n = 0
while True:
    t = time.time()
    time.sleep(2 - t % 2)
    every = n % 30 == 0
    for i, c in enumerate(conns):
        out = []
        for p in range(i * 1000 + 1, i * 1000 + 1001):
            change = random.random() < 0.08
            if change: state[p] = not state[p]
            if every or change: out.append("%d;%d\n" % (p, state[p]))
        c.sendall("".join(out).encode())
    n += 1
