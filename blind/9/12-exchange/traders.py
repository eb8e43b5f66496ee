"""Traders (programs, mostly)."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
lat = {"order": [], "last": [], "balance": []}
failed = 0
async def trader(i):
    global failed
    await asyncio.sleep(i * 0.02)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.04, 0.16))
                x = random.random()
                if x < 0.9:
                    k, q = "order", "%s %d %d %d\n" % (random.choice(["buy", "sell"]), random.randrange(6), int(random.gauss(1000, 30)), random.randint(1, 20))
                elif x < 0.97:
                    k, q = "last", "last\n"
                else:
                    k, q = "balance", "balance %d\n" % random.randint(1, 9000)
                t = time.monotonic()
                w.write(q.encode())
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
                    f.write("%s %.1f/s median %.2f ms p99 %.1f ms; " % (k, len(l) / 5, 1000 * l[len(l) // 2], 1000 * l[int(len(l) * 0.99)]))
                l.clear()
            f.write("failed %d\n" % failed)
async def main():
    await asyncio.gather(reporter(), *[trader(i) for i in range(110)])
asyncio.run(main())
