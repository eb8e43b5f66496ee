"""readers: pages, searches and covers of the catalogue"""
import http.client, random, sys, threading, time

port, report = int(sys.argv[1]), sys.argv[2]
lock, lat, stat = threading.Lock(), [], {}

def reader(i):
    time.sleep(random.random() * 2)
    while True:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            for _ in range(random.randrange(5, 40)):
                x = random.random()
                u = "/cover%d.jpg" % random.randrange(20) if x < 0.4 else "/search?q=%s" % random.choice("abcdefgh") if x < 0.7 else \
                    "/book?n=%d" % random.randrange(60000) if x < 0.97 else "/old%d.html" % random.randrange(9)
                t = time.time()
                c.request("GET", u)
                r = c.getresponse()
                b = r.read()
                with lock:
                    lat.append(time.time() - t)
                    k = "%d %s" % (r.status, u[:3])
                    stat[k] = stat.get(k, 0) + 1
                time.sleep(random.expovariate(1 / 0.25))
            c.close()
        except (OSError, http.client.HTTPException):
            with lock:
                stat["error"] = stat.get("error", 0) + 1
            time.sleep(1)

for i in range(24):
    threading.Thread(target=reader, args=(i,), daemon=True).start()
while True:
    time.sleep(5)
    with lock:
        l = sorted(lat); lat.clear(); s = dict(stat); stat.clear()
    with open(report, "a") as f:
        f.write("%.0f/s median %.1f p95 %.1f max %.1f ms %s\n" % (len(l) / 5, 1e3 * l[len(l) // 2], 1e3 * l[len(l) * 95 // 100], 1e3 * l[-1], s) if l else "no answers\n")
