"""Box offices sell seats (250/s), the web asks for free ones (100/s). At the start what was sold since yesterday."""
import random, socket, sys, threading, time
port, out, before = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
times, lock = [], threading.Lock()
def conn():
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); return s
boxes = [conn() for _ in range(10)]
def sold(n):
    for b in boxes: b.sendall(b"".join(b"sold %d %d\n" % (random.randrange(1, 501), random.randrange(1, 5)) for _ in range(n // 10)))
for _ in range(before // 5000): sold(5000); time.sleep(0.12)
def web():
    s = conn(); f = s.makefile("rb")
    while True:
        time.sleep(random.expovariate(8)); t = time.monotonic()
        s.sendall(b"free %d\n" % random.randrange(1, 501)); f.readline()
        with lock: times.append(time.monotonic() - t)
for _ in range(12): threading.Thread(target=web, daemon=True).start()
def rep():
    while True:
        time.sleep(5)
        with lock: x, times[:] = sorted(times), []
        if x:
            with open(out, "a") as f: f.write("n/s %.0f median %.1f ms p95 %.1f max %.1f\n" % (len(x) / 5, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
threading.Thread(target=rep, daemon=True).start()
while True: sold(30); time.sleep(0.12)
