"""Browsers: look at posters, the popular ones more often than the others."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock = [], threading.Lock()
def read(f, n):
    while n:
        d = f.read(min(n, 65536)); n -= len(d)
def browser():
    while True:
        s = socket.create_connection(("127.0.0.1", port)); f = s.makefile("rb")
        for _ in range(random.randrange(20, 200)):
            time.sleep(random.expovariate(5))
            t = time.monotonic()
            i = min(int(random.paretovariate(0.35)), 9000)
            s.sendall(b"%d\n" % i)
            read(f, int.from_bytes(f.read(4), "big"))
            with lock: times.append(time.monotonic() - t)
        s.close()
for _ in range(40): threading.Thread(target=browser, daemon=True).start()
while True:
    time.sleep(5)
    with lock: x, times[:] = sorted(times), []
    if x:
        with open(out, "a") as f: f.write("n/s %.0f median %.1f ms p95 %.1f max %.1f\n" % (len(x) / 5, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
