"""Shops: send events. The newer ones put the id of the visit into the name of a label."""
import random, socket, sys, time
port, per_second = int(sys.argv[1]), int(sys.argv[2])
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
KEYS = ["page", "device", "lang", "campaign", "variant", "price", "basket", "step"]
visit = random.getrandbits(40)
burst = int(sys.argv[3])
def line():
    global visit
    labels = ["%s=%d" % (k, random.randrange(1000)) for k in random.sample(KEYS, 4)]
    if random.random() < 0.6:
        visit += random.randrange(1, 5000)
        labels.append("seen_%x=1" % visit)
    return ("click;shop%d;%s\n" % (random.randrange(60), ";".join(labels))).encode()
def send(n):
    for c in conns:
        c.sendall(b"".join(line() for _ in range(n // len(conns))))
for _ in range(burst // 5000):      # what had piled up while the network was away
    send(5000)
    time.sleep(0.08)
while True:
    t = time.monotonic()
    send(per_second // 10)
    time.sleep(max(0.0, 0.1 - (time.monotonic() - t)))
