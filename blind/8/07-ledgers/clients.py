"""25 tills: each is connected for one customer's payments and hangs up then."""
import asyncio, random, sys, time
port, report, N = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
stat = {"customers": 0, "bookings": 0, "broken": 0}
took = []
async def till(c):
    while True:
        await asyncio.sleep(0.2 + random.random() * 0.8)
        w = None
        try:
            t = time.monotonic()
            r, w = await asyncio.open_connection("127.0.0.1", port)
            a = random.randrange(100000)
            for _ in range(4):
                w.write(b"book %d %d\n" % (a, random.randrange(-900, 900)))
                if not await asyncio.wait_for(r.readline(), 5): raise OSError
                stat["bookings"] += 1
            stat["customers"] += 1
            took.append(time.monotonic() - t)
        except (OSError, asyncio.TimeoutError): stat["broken"] += 1
        if w: w.close()
async def rep():
    while True:
        await asyncio.sleep(4)
        x = sorted(took) or [0]; took.clear()
        with open(report, "a") as f: f.write("%s took median %.1f p95 %.1f max %.1f ms\n" % (stat, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
        for k in stat: stat[k] = 0
async def main(): await asyncio.gather(rep(), *[till(c) for c in range(N)])
asyncio.run(main())
