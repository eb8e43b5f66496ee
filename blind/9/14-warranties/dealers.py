"""Dealers: look up contracts and file claims."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
lat, failed = [], 0
async def dealer(i):
    global failed
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.1, 0.6))
                t = time.monotonic()
                w.write(("%s %d %d\n" % ("claim" if random.random() < 0.1 else "find", random.randint(1, 400), random.randint(1, 45))).encode())
                if not await asyncio.wait_for(r.readline(), 20):
                    raise OSError("closed")
                lat.append(time.monotonic() - t)
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
    await asyncio.gather(reporter(), *[dealer(i) for i in range(40)])
asyncio.run(main())
