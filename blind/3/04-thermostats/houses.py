"""1500 thermostats; all clocks are synchronised and all report at the full second."""
import socket, sys, time, random
port, report = int(sys.argv[1]), sys.argv[2]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", port))
sent = 0
while True:
    time.sleep(1 - time.time() % 1)
    for i in range(1500):
        try:
            s.send(("t%04d;%.1f;%.1f;" % (i, random.uniform(17, 24), 21.0)).encode() + b"battery=88;rssi=-61;valve=40;fw=2.1.7;" + b"-" * 60)
            sent += 1
        except OSError:
            pass
    with open(report, "w") as f:
        f.write("%d %d\n" % (time.time(), sent))
