"""Brokers ask for offers. The tariffs of the classes 17 and 41 have been withdrawn; in the first seconds a portal asks for all classes."""
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
lock, n = threading.Lock(), {}
def ask(s, f, plate, c):
    s.sendall(b"%s %d %d %d\n" % (plate, c, random.randrange(18, 80), random.randrange(3000, 40000)))
    a = f.readline().split()[0].decode()
    with lock: n[a] = n.get(a, 0) + 1
def conn():
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s, s.makefile("rb")
def plate(_): return b"AB%05d" % random.randrange(100000)
def broker():
    s, f = conn()
    while True:
        time.sleep(random.expovariate(8))
        ask(s, f, plate(0), random.choice([c for c in range(1, 61) if c not in (17, 41)]) if random.random() > 0.0004 else 17)
s, f = conn()
for _ in range(760): ask(s, f, plate(0), random.choice((17, 41)))
for _ in range(20): threading.Thread(target=broker, daemon=True).start()
while True:
    time.sleep(5)
    with lock:
        with open(out, "a") as f: f.write("%s\n" % n)
        n.clear()
