"""9 cameras, 25 pictures a second of 6 kB each; and their screens. The guard at the gate has a poor line."""
import socket, struct, sys, threading, time
port = int(sys.argv[1])
def put(s, b): s.sendall(struct.pack(">I", len(b)) + b)
def screen(k):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    s.connect(("127.0.0.1", port)); put(s, b"screen cam%d" % k)
    while True:
        if k == 6:
            time.sleep(0.1)
            if not s.recv(1100): return       # 11 kB/s
        elif not s.recv(65536): return
def camera(k):
    s = socket.create_connection(("127.0.0.1", port)); put(s, b"camera cam%d" % k)
    nxt = time.monotonic()
    while True:
        put(s, bytes([k]) * 6000)
        nxt += 0.04
        time.sleep(max(0, nxt - time.monotonic()))
for k in range(9): threading.Thread(target=screen, args=(k,), daemon=True).start()
time.sleep(1)
for k in range(9): threading.Thread(target=camera, args=(k,), daemon=True).start()
time.sleep(300)
