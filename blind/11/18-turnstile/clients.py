"""doors that ask whether a badge may pass"""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
N, PAUSE = 25, 0.15
lat, stat = [], {"again": 0, "said": {}}

def line(i, n):
    return "may b%d d%d" % (random.randrange(9000), i)

async def client(i):
    n = 0
    await asyncio.sleep(random.random() * 2)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            while True:
                t = time.time()
                w.write((line(i, n) + "\n").encode())
                n += 1
                a = await r.readline()
                if not a:
                    raise OSError("closed")
                lat.append(time.time() - t)
                k = a.split()[0].decode() if a.split() else ""
                stat["said"][k] = stat["said"].get(k, 0) + 1
                await asyncio.sleep(random.expovariate(1 / PAUSE))
        except (OSError, ValueError):
            stat["again"] += 1
        finally:
            if w:
                w.close()
        await asyncio.sleep(0.5 + random.random())

async def reporter():
    while True:
        lat.clear(); stat["said"] = {}
        await asyncio.sleep(5)
        l = sorted(lat)
        with open(report, "a") as f:
            if l:
                f.write("%.0f/s median %.1f p95 %.1f max %.1f ms reconnects %d %s\n" % (len(l) / 5, 1e3 * l[len(l) // 2],
                    1e3 * l[len(l) * 95 // 100], 1e3 * l[-1], stat["again"], dict(sorted(stat["said"].items())[:6])))
            else:
                f.write("no answers, reconnects %d\n" % stat["again"])

async def main():
    await asyncio.gather(reporter(), *[client(i) for i in range(N)])

asyncio.run(main())
