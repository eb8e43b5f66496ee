"""Tills of 12 shops: sales, and customers who ask for their points."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
lock, n = threading.Lock(), {"booked": 0, "not": 0, "asked": 0}
def till(shop):
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); f = s.makefile("rb")
    while True:
        time.sleep(random.expovariate(5))
        c = random.randrange(1, 20001)
        s.sendall(b"%d\n" % c if random.random() < 0.2 else b"%d %d %d\n" % (c, shop, random.randrange(100, 9000)))
        a = f.readline().split()[0].decode()
        with lock: n[a if a in n else "asked"] += 1
for k in range(72): threading.Thread(target=till, args=(1 + min(k % 18, 11) if k % 3 else 1 + k % 4,), daemon=True).start()
while True:
    time.sleep(5)
    with lock:
        with open(out, "a") as f: f.write("%s\n" % n)
        for k in n: n[k] = 0
