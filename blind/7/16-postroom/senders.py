"""Senders: some customers get much mail; most get one with big attachments now and then. At the start the mail of the night."""
import os, random, socket, struct, sys, time
port = int(sys.argv[1])
blob = os.urandom(1 << 16).hex().encode()
def mail(size):
    head = b"From: a%d@example.org\nSubject: %s\nDate: today\n" % (random.randrange(999), b"papers " * random.randrange(1, 9))
    words = b" ".join(b"word%d" % random.randrange(10**6) for _ in range(4000))
    parts = [words]
    while sum(map(len, parts)) < size: parts.append((blob * 8)[:random.randrange(200000, 500000)])
    return head + b"\n" + b"--next--".join(parts)
def send(n, size):
    s = socket.create_connection(("127.0.0.1", port))
    m = struct.pack(">H", n) + mail(size)
    s.sendall(struct.pack(">I", len(m)) + m); s.recv(8); s.close()
night = list(range(1, 131)) + random.sample(range(1, 131), 50)
random.shuffle(night)
for n in night: send(n, random.choice((2, 4, 6)) * 1000000)
k = 0
while True:
    t = time.monotonic(); k += 1
    if k % 30 == 0: send(random.randrange(11, 131), random.choice((2, 4, 6)) * 1000000)
    else: send(random.randrange(1, 11), 20000)
    time.sleep(max(0.0, 0.1 - (time.monotonic() - t)))
