"""The suppliers' document store: a document of ~210 KB, two of its lines are listed ones."""
import random, socketserver, struct, sys

random.seed(7)
FILLER = ["-;SKU9%010d;article that is not in the shop, size %d;%d\n" % (i, i % 50, 100 + i) for i in range(4000)]
CHUNKS = ["".join(random.sample(FILLER, 900)) for _ in range(12)]

class H(socketserver.StreamRequestHandler):
    def handle(self):
        n = struct.unpack(">I", self.rfile.read(4))[0]
        i = int(self.rfile.read(n))
        listed = ["L;SKU%010d%d;Very nice product number %d of the season, hard-wearing, machine washable, made from organic cotton in Portugal, delivered within three working days;%d\n" % (k, k % 10, k, 500 + k % 9000)
                  for k in (2 * i, 2 * i + 1)]
        a, b, c, d = random.sample(CHUNKS, 4)
        body = (a + listed[0] + b + c + listed[1] + d).encode()
        self.wfile.write(struct.pack(">I", len(body)) + body)

class S(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

with S(("127.0.0.1", 0), H) as s:
    with open(sys.argv[1], "w") as f:
        f.write(str(s.server_address[1]))
    s.serve_forever()
