# web pages: 30 connections, each asks every 60 ms; writes how long the answers take
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
times, lock = [], threading.Lock()
def page(i):
    time.sleep(i * 0.05)
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    f = s.makefile("rb")
    while True:
        t = time.time(); s.sendall(b"%d\n" % random.randrange(100, 340000)); f.readline()
        with lock: times.append(time.time() - t)
        time.sleep(0.06)
for i in range(30):
    threading.Thread(target=page, args=(i,), daemon=True).start()
while True:
    time.sleep(5)
    with lock: t, times = sorted(times), []
    open(out, "a").write("%d answers in 5 s, median %.1f ms, p99 %.1f ms, max %.1f ms\n" % (len(t), 1000 * t[len(t) // 2], 1000 * t[int(len(t) * 0.99)], 1000 * t[-1]))
