"""Couriers with their phones."""
import asyncio, random, sys, time
port, report, couriers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
lat = {"pos": [], "zone": []}
failed = 0

async def bike(i):
    global failed
    await asyncio.sleep(i * 0.03)
    x, y = random.randrange(1000), random.randrange(1000)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            async def ask(q, kind=None):
                t = time.monotonic()
                w.write(q.encode())
                if not await asyncio.wait_for(r.readline(), 30):
                    raise OSError("closed")
                if kind:
                    lat[kind].append(time.monotonic() - t)
            await ask("hello c%d\n" % i)
            while True:
                await asyncio.sleep(random.uniform(5, 9))
                x, y = (x + random.randrange(-9, 10)) % 1000, (y + random.randrange(-9, 10)) % 1000
                await ask("pos c%d %d %d\n" % (i, x, y), "pos")
                await ask("zone %d %d\n" % (x, y), "zone")
        except (OSError, asyncio.TimeoutError):
            failed += 1
            await asyncio.sleep(1)

async def reporter():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for k, l in lat.items():
                l.sort()
                if l:
                    f.write("%s %.1f/s median %.1f ms p95 %.1f ms max %.1f ms; " % (k, len(l) / 5, 1000 * l[len(l) // 2], 1000 * l[int(len(l) * 0.95)], 1000 * l[-1]))
                l.clear()
            f.write("failed %d\n" % failed)

async def main():
    await asyncio.gather(reporter(), *[bike(i) for i in range(couriers)])
asyncio.run(main())
