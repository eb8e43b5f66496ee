"""Shops that have the addresses of their customers checked."""
import asyncio, random, sys, time
port, report, shops = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
lat = {"check": [], "countries": []}
failed = 0
async def shop(i):
    global failed
    await asyncio.sleep(i * 0.04)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.2, 1.0))
                k = "check" if random.random() < 0.9 else "countries"
                t = time.monotonic()
                w.write(("check;%s;%05d;Street No %d\n" % (random.choice(["DE", "AT", "NL", "PL"]), random.randrange(99999), random.randrange(200))).encode() if k == "check" else b"countries\n")
                if not await asyncio.wait_for(r.readline(), 30):
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
                    f.write("%s %.1f/s median %.1f ms p95 %.1f ms; " % (k, len(l) / 5, 1000 * l[len(l) // 2], 1000 * l[int(len(l) * 0.95)]))
                l.clear()
            f.write("failed %d\n" % failed)
async def main():
    await asyncio.gather(reporter(), *[shop(i) for i in range(shops)])
asyncio.run(main())
