"""scooters that are connected and report their place, and people who look for one"""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
lat, stat = [], {"reports": 0, "again": 0}

async def scooter(i):
    await asyncio.sleep(random.random() * 4)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(random.randrange(10, 40)):
                w.write(b"at s%d %d %d\n" % (i, random.randrange(1000), random.randrange(1000)))
                if not await r.readline():
                    raise OSError("closed")
                stat["reports"] += 1
                await asyncio.sleep(1 + 2 * random.random())
        except OSError:
            pass
        finally:
            if w:
                w.close()
        stat["again"] += 1
        await asyncio.sleep(random.random())

async def person(i):
    await asyncio.sleep(random.random() * 3)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                t = time.time()
                w.write(b"near %d %d\n" % (random.randrange(1000), random.randrange(1000)))
                if not await r.readline():
                    raise OSError("closed")
                lat.append(time.time() - t)
                await asyncio.sleep(random.expovariate(4))
        except OSError:
            pass
        finally:
            if w:
                w.close()
        await asyncio.sleep(1)

async def reporter():
    while True:
        lat.clear(); stat["reports"] = 0
        await asyncio.sleep(5)
        l = sorted(lat)
        with open(report, "a") as f:
            f.write("%.0f/s median %.1f p95 %.1f max %.1f ms, %d reports/s, again %d\n" % (len(l) / 5, 1e3 * l[len(l) // 2],
                1e3 * l[len(l) * 95 // 100], 1e3 * l[-1], stat["reports"] / 5, stat["again"]) if l else "no answers\n")

async def main():
    await asyncio.gather(reporter(), *[scooter(i) for i in range(500)], *[person(i) for i in range(15)])

asyncio.run(main())
