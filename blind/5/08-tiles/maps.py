# people look at maps: a connection for 20 tiles, then a new one
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock, bad = [], threading.Lock(), [0]
def look(i):
    time.sleep(i * 0.1)
    while True:
        s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        f = s.makefile("rb")
        for _ in range(20):
            far = random.random() < 0.2
            t = time.time(); s.sendall(b"%d/%d/%d\n" % (12, random.randrange(100000 if far else 40), random.randrange(60)))
            n = int(f.readline())
            if len(f.read(n)) != 48000: bad[0] += 1
            with lock: times.append(time.time() - t)
            time.sleep(0.03)
        s.close()
for i in range(16):
    threading.Thread(target=look, args=(i,), daemon=True).start()
while True:
    time.sleep(5)
    with lock: t, times = sorted(times), []
    open(out, "a").write("%d tiles in 5 s, bad %d, median %.1f ms, p99 %.1f ms, max %.1f ms\n" % (len(t), bad[0], 1000 * t[len(t) // 2], 1000 * t[int(len(t) * 0.99)], 1000 * t[-1]))
