"""The pair of Prometheus servers."""
import sys, threading, time, urllib.request

port, report = int(sys.argv[1]), sys.argv[2]

def scraper(i):
    time.sleep(i)
    while True:
        t = time.time()
        try:
            b = urllib.request.urlopen("http://127.0.0.1:%d/metrics/per-object" % port, timeout=30).read()
            with open(report, "a") as f:
                f.write("prometheus%d: %d lines, %.1f MB in %.2f s\n" % (i, b.count(b"\n"), len(b) / 1e6, time.time() - t))
        except OSError as e:
            with open(report, "a") as f:
                f.write("prometheus%d: %s\n" % (i, e))
        time.sleep(max(0.5, 2 - (time.time() - t)))

for i in range(2):
    threading.Thread(target=scraper, args=(i,)).start()
