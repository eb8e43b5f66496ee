"""Phones: look at photos and put new ones. Writes the median/95 %/max of the answer times every 5 s."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock = [], threading.Lock()
def phone():
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    f = s.makefile("rb")
    while True:
        time.sleep(random.expovariate(6))
        t = time.monotonic()
        k = random.randrange(1, 60001)
        s.sendall(("%s photo%d\n" % ("GET" if random.random() < 0.85 else "PUT", k)).encode())
        f.readline()
        with lock: times.append(time.monotonic() - t)
for _ in range(24): threading.Thread(target=phone, daemon=True).start()
while True:
    time.sleep(5)
    with lock: x, times[:] = sorted(times), []
    if x:
        with open(out, "a") as f: f.write("n/s %.0f median %.1f ms p95 %.1f max %.1f\n" % (len(x) / 5, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
