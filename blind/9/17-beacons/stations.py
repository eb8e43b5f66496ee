"""Coast stations: positions all the time; after an outage of the line they first deliver what they had stored."""
import random, socket, sys, threading, time
port, stored, per_second = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
N = 8
def pos():
    return b"P ship%d %.4f %.4f\n" % (random.randrange(2000), random.uniform(50, 60), random.uniform(0, 12))
def station(i):
    first = True
    while True:
        try:
            c = socket.create_connection(("127.0.0.1", port))
            if first:
                for _ in range(stored // N // 500):
                    c.sendall(b"".join(pos() for _ in range(500)))
                first = False
            n = 0
            nxt = time.monotonic()
            while True:
                c.sendall(b"".join(pos() for _ in range(per_second // N // 10)))
                n += 1
                if n % 50 == 0:
                    c.sendall(b"A ship%d mob\n" % random.randrange(2000))
                    c.settimeout(10)
                    if not c.recv(10):
                        raise OSError("closed")
                nxt = max(nxt + 0.1, time.monotonic() - 1)
                time.sleep(max(0.0, nxt - time.monotonic()))
        except OSError:
            time.sleep(1)
for i in range(N):
    threading.Thread(target=station, args=(i,), daemon=True).start()
time.sleep(1000)
