"""The web tier asks whether a user follows a meetup (40 times a second)."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock = [], threading.Lock()
def front():
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); f = s.makefile("rb")
    while True:
        time.sleep(random.expovariate(4))
        t = time.monotonic()
        s.sendall(b"%d user%d\n" % (random.randrange(1, 6001), random.randrange(1, 2601)))
        f.readline()
        with lock: times.append(time.monotonic() - t)
for _ in range(10): threading.Thread(target=front, daemon=True).start()
while True:
    time.sleep(5)
    with lock: x, times[:] = sorted(times), []
    if x:
        with open(out, "a") as f: f.write("n/s %.0f median %.1f ms p95 %.1f max %.1f\n" % (len(x) / 5, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
