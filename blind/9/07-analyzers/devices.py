"""60 devices of the laboratory; some connect for a series of results only."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
lat, failed = [], 0
async def device(i):
    global failed
    await asyncio.sleep(i * 0.05)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(10 ** 9 if i % 4 else random.randrange(10, 40)):
                t = time.monotonic()
                w.write(b"R|D%d|T%d|%d\n" % (i, random.randint(1, 60), random.randrange(150)))
                if not await asyncio.wait_for(r.readline(), 10):
                    raise OSError("closed")
                lat.append(time.monotonic() - t)
                await asyncio.sleep(random.uniform(0.2, 1.0))
            w.close()
            await asyncio.sleep(random.uniform(1, 4))
        except (OSError, asyncio.TimeoutError):
            failed += 1
            await asyncio.sleep(1)
async def reporter():
    while True:
        await asyncio.sleep(5)
        lat.sort()
        with open(report, "a") as f:
            f.write("%.1f/s median %.1f ms p95 %.1f ms failed %d\n" % (len(lat) / 5, 1000 * lat[len(lat) // 2] if lat else 0, 1000 * lat[int(len(lat) * 0.95)] if lat else 0, failed))
        lat.clear()
async def main():
    await asyncio.gather(reporter(), *[device(i) for i in range(60)])
asyncio.run(main())
