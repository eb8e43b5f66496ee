"""The customers' directory: every question is a look-up in its database, which has three connections."""
import http.server, random, socketserver, sys, threading, time
db = threading.Semaphore(3)
stat = {}
waits = []
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        t = time.monotonic()
        with db:
            time.sleep(random.uniform(0.22, 0.42))
        stat[self.path] = stat.get(self.path, 0) + 1
        waits.append(time.monotonic() - t)
        body = b"allow"
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a):
        pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128
s = S(("127.0.0.1", int(sys.argv[1])), H)
def report():
    while True:
        time.sleep(5)
        w = sorted(waits); waits.clear()
        with open(sys.argv[2], "a") as f:
            f.write("%s answers %.1f/s median %.0f ms\n" % (sorted(stat.items()), len(w) / 5, 1000 * w[len(w) // 2] if w else 0))
threading.Thread(target=report, daemon=True).start()
s.serve_forever()
