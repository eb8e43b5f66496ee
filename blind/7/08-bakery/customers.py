"""Customers of the branches: 260 orders a second over 20 connections."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock, open_ = [], threading.Lock(), {}
ids = iter(range(1, 10**9))
def conn():
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    def read():
        for l in s.makefile("rb"):
            i = int(l.split()[0])
            with lock: times.append(time.monotonic() - open_.pop(i))
    threading.Thread(target=read, daemon=True).start()
    while True:
        time.sleep(random.expovariate(13))
        with lock: i = next(ids); open_[i] = time.monotonic()
        s.sendall(("%d %d %s\n" % (i, random.randrange(1, 401), " ".join(str(random.randrange(1, 901)) for _ in range(random.randrange(1, 11))))).encode())
for _ in range(20): threading.Thread(target=conn, daemon=True).start()
while True:
    time.sleep(5)
    with lock: x, times[:] = sorted(times), []
    if x:
        with open(out, "a") as f: f.write("n/s %.0f median %.1f ms p95 %.1f max %.1f waiting %d\n" % (len(x) / 5, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1], len(open_)))
