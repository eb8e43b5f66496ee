"""The name server of the house: names that it does not know it asks of another one, which is slow; then it says no."""
import socket, sys, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0))
with open(sys.argv[1], "w") as f: f.write(str(s.getsockname()[1]))
n = 0
def no(q, peer):
    time.sleep(0.45)
    s.sendto(q[:2] + b"\x81\x83" + q[4:6] + b"\0\0\0\0\0\0" + q[12:], peer)
while True:
    q, peer = s.recvfrom(2048); n += 1
    threading.Thread(target=no, args=(q, peer), daemon=True).start()
    with open(sys.argv[1] + ".asked", "w") as f: f.write(str(n))
