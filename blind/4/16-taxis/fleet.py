"""600 taxis, each tells where it is once a second."""
import random, socket, sys, time
port = int(sys.argv[1])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start, n = time.time(), 0
while True:
    n += 1
    a, b = random.randrange(10**6), random.randrange(10**6)
    s.sendto((str(1 + n % 600) + "".join(";%d,%d" % (a + k * 3, b + k * 2) for k in range(30))).encode(), ("127.0.0.1", port))
    time.sleep(max(0, start + n / 600 - time.time()))
