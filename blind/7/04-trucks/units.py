"""Units in the trucks: 180 events a second, one in twelve twice."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock = [], threading.Lock()
def unit():
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); f = s.makefile("rb")
    while True:
        time.sleep(random.expovariate(5))
        e = b"%d %d %.5f %.5f %d\n" % (random.randrange(10**9), random.randrange(1, 901), random.uniform(47, 49), random.uniform(15, 17), random.randrange(0, 90))
        for _ in range(2 if random.random() < 0.08 else 1):
            t = time.monotonic(); s.sendall(e); f.readline()
            with lock: times.append(time.monotonic() - t)
for _ in range(36): threading.Thread(target=unit, daemon=True).start()
while True:
    time.sleep(5)
    with lock: x, times[:] = sorted(times), []
    if x:
        with open(out, "a") as f: f.write("n/s %.0f median %.1f ms p95 %.1f max %.1f\n" % (len(x) / 5, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
