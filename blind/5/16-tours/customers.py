# customers of the web shop (20 connections) and the payment provider's calls back; a quarter close the payment page: no call
import random, socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
n = {"offer": 0, "paid": 0, "refused": 0, "left": 0, "closed": 0}
def shop(i):
    time.sleep(i * 0.02)
    s = socket.create_connection(("127.0.0.1", port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    f = s.makefile("rb")
    def ask(t):
        s.sendall(t.encode() + b"\n")
        return f.readline().decode().strip()
    while True:
        b = ask("OFFER %d %d" % (random.randrange(1, 300), random.randrange(1, 6)))
        n["offer"] += 1
        time.sleep(0.02)
        if random.random() < 0.2:
            ask("LEAVE " + b); n["left"] += 1
        else:
            ref = ask("ACCEPT %s Miller" % b)
            time.sleep(0.03)
            d = random.random()
            if d < 0.65: ask("PAID " + ref); n["paid"] += 1
            elif d < 0.75: ask("REFUSED " + ref); n["refused"] += 1
            else: n["closed"] += 1
        time.sleep(0.07)
for i in range(20):
    threading.Thread(target=shop, args=(i,), daemon=True).start()
while True:
    time.sleep(0.5)
    open(out, "w").write(repr(n))
