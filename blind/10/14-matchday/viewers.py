"""300 viewers, who read what comes and come back when their connection breaks."""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
lat, stat = [], {"bytes": 0, "again": 0, "in": 0}

async def viewer(i):
    await asyncio.sleep(random.random() * 3)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            w.write(b"watch match%d\n" % (i % 4))
            stat["in"] += 1
            try:
                while True:
                    h = await r.readexactly(4)
                    b = await r.readexactly(int.from_bytes(h, "big"))
                    stat["bytes"] += len(b)
                    if i % 10 == 0:
                        k = b.find(b'"at":')
                        lat.append(time.time() * 1000 - int(b[k + 5:k + 18]))
            finally:
                stat["in"] -= 1
        except (OSError, ValueError, asyncio.IncompleteReadError):
            stat["again"] += 1
        finally:
            if w:
                w.close()
        await asyncio.sleep(0.5 + random.random())

async def reporter():
    while True:
        lat.clear(); stat["bytes"] = 0
        await asyncio.sleep(5)
        l = sorted(lat)
        with open(report, "a") as f:
            f.write("in %d kB/s %.0f on the way median %.0f max %.0f ms reconnects %d\n" % (
                stat["in"], stat["bytes"] / 5000, l[len(l) // 2] if l else 0, l[-1] if l else 0, stat["again"]))

async def main():
    await asyncio.gather(reporter(), *[viewer(i) for i in range(300)])

asyncio.run(main())
