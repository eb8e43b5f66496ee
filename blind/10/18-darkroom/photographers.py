"""Photographers who upload pictures, visitors who look at the list."""
import http.client, os, random, sys, threading, time

port, report = int(sys.argv[1]), sys.argv[2]
lat = {"POST": [], "GET": []}
stat = {"errors": 0}

def client(kind, pause):
    c = None
    while True:
        try:
            if c is None:
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            t = time.time()
            if kind == "POST":
                b = "frontier%d" % random.randrange(1 << 30)
                body = (("--%s\r\nContent-Disposition: form-data; name=\"picture\"; filename=\"p%d.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n" % (b, random.randrange(9999))).encode()
                        + os.urandom(random.randrange(1800000, 2200000)) + ("\r\n--%s--\r\n" % b).encode())
                c.request("POST", "/upload/new", body, {"Content-Type": "multipart/form-data; boundary=" + b})
            else:
                c.request("GET", random.choice(["/prints/", "/index.html"]))
            r = c.getresponse()
            r.read()
            if r.status != 200:
                stat["errors"] += 1
            lat[kind].append(time.time() - t)
        except (OSError, http.client.HTTPException):
            stat["errors"] += 1
            c = None
        time.sleep(random.expovariate(1 / pause))

for i in range(6):
    threading.Thread(target=client, args=("POST", 2.0), daemon=True).start()
for i in range(10):
    threading.Thread(target=client, args=("GET", 0.5), daemon=True).start()
while True:
    time.sleep(5)
    with open(report, "a") as f:
        for k in lat:
            l = sorted(lat[k]); lat[k].clear()
            f.write("%s %.1f/s median %.0f max %.0f ms " % (k, len(l) / 5, 1e3 * l[len(l) // 2] if l else 0, 1e3 * l[-1] if l else 0))
        f.write("errors %d\n" % stat["errors"])
