# readers of the manuals; now and then the new search engine's spider asks for a page with a path without the leading slash and gives up after 3 s
import http.client, random, sys, threading, time
port, out = int(sys.argv[1]), sys.argv[2]
n = {"ok": 0, "late": 0, "ms": 0.0, "spider": 0, "spider_late": 0}
def reader(i):
    time.sleep(i * 0.1)
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    while True:
        t = time.time()
        u = "/find?q=m%d" % random.randrange(1, 20) if random.random() < 0.2 else "/show?page=/%s/m%d/c%d.html" % (random.choice(["printers", "scanners", "cutters"]), random.randrange(1, 21), random.randrange(1, 11))
        try:
            c.request("GET", u); c.getresponse().read(); n["ok"] += 1; n["ms"] = 0.95 * n["ms"] + 50 * (time.time() - t)
        except OSError:
            n["late"] += 1; c.close()
        time.sleep(0.15)
def spider():
    k = 0
    while k < 6:
        k += 1
        time.sleep(4 if k < 4 else 50)
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        try:
            c.request("GET", "/show?page=scanners/m%d/c1.html" % k); c.getresponse().read(); n["spider"] += 1
        except OSError:
            n["spider_late"] += 1
        c.close()
for i in range(12):
    threading.Thread(target=reader, args=(i,), daemon=True).start()
threading.Thread(target=spider, daemon=True).start()
while True:
    time.sleep(0.5)
    open(out, "w").write(repr(n))
