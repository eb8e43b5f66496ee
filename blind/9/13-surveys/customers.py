"""Customers: read reports, have new ones made, look at the sums."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
lat = {"report": [], "renew": [], "sums": []}
failed = 0
async def customer(i):
    global failed
    await asyncio.sleep(i * 0.03)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            while True:
                await asyncio.sleep(random.uniform(0.4, 1.6))
                k = random.choices(["report", "renew", "sums"], [70, 10, 20])[0]
                t = time.monotonic()
                w.write((k + (" %d" % random.randrange(3000) if k == "report" else "") + "\n").encode())
                if not await asyncio.wait_for(r.readline(), 20):
                    raise OSError("closed")
                lat[k].append(time.monotonic() - t)
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
    await asyncio.gather(reporter(), *[customer(i) for i in range(45)])
asyncio.run(main())
