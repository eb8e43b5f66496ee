"""Sensors of 20 greenhouses."""
import random, socket, sys, time
port, rate, first = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
KINDS = [("temp", "C"), ("humidity", "pct"), ("light", "lx"), ("co2", "ppm"), ("soil", "pct")]
def line(h):
    k, u = random.choice(KINDS)
    return "%d;%s;%s;%s\n" % (h + 1, k, u, ";".join("%.3f" % random.gauss(24, 3) for _ in range(32)))
def send(n):
    for h, c in enumerate(conns):
        c.sendall("".join(line(h) for _ in range(n // 20)).encode())
for _ in range(first // 2000):      # the values of the night, when the network was away
    send(2000); time.sleep(0.1)
while True:
    t = time.monotonic()
    send(rate // 10)
    time.sleep(max(0.0, 0.1 - (time.monotonic() - t)))
