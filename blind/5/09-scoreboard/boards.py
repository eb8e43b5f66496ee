# 40 boards read what comes; one more (stadium 17) hangs: it holds its connection and does not read
import socket, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
got = [0] * 40
def board(i):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"stadium %d\n" % i)
    f = s.makefile("rb")
    def ping():
        while True:
            time.sleep(20)
            s.sendall(b"PING\n")
    threading.Thread(target=ping, daemon=True).start()
    for _ in f:
        got[i] += 1
for i in range(40):
    threading.Thread(target=board, args=(i,), daemon=True).start()
time.sleep(1)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
s.connect(("127.0.0.1", port))
s.sendall(b"stadium 117\n")
t = 0
while True:
    time.sleep(0.5)
    t += 1
    if t % 40 == 0:
        s.sendall(b"PING\n")     # its other half still lives
    open(out, "w").write("%d lines to 40 boards" % sum(got))
