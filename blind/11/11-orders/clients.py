"""shops that send orders and ask for their state"""
import http.client, random, sys, threading, time

port, report = int(sys.argv[1]), sys.argv[2]
lock, lat, stat = threading.Lock(), [], {}

def shop(i):
    time.sleep(random.random() * 2)
    while True:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            for _ in range(random.randrange(20, 80)):
                u = "/order?shop=s%d&goods=%s" % (random.randrange(60), ",".join("g%d" % random.randrange(5000) for _ in range(random.randrange(1, 9)))) \
                    if random.random() < 0.5 else "/state?n=%d" % random.randrange(2000)
                t = time.time()
                c.request("GET", u)
                r = c.getresponse()
                r.read()
                with lock:
                    lat.append(time.time() - t)
                    k = "%d %s" % (r.status, u[1:4])
                    stat[k] = stat.get(k, 0) + 1
                time.sleep(random.expovariate(1 / 0.15))
            c.close()
        except (OSError, http.client.HTTPException):
            with lock:
                stat["error"] = stat.get("error", 0) + 1
            time.sleep(1)

for i in range(30):
    threading.Thread(target=shop, args=(i,), daemon=True).start()
while True:
    time.sleep(5)
    with lock:
        l = sorted(lat); lat.clear(); s = dict(stat); stat.clear()
    with open(report, "a") as f:
        f.write("%.0f/s median %.1f p95 %.1f max %.1f ms %s\n" % (len(l) / 5, 1e3 * l[len(l) // 2], 1e3 * l[len(l) * 95 // 100], 1e3 * l[-1], s) if l else "no answers\n")
