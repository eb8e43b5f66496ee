"""Ticket machines ask for fares."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
t = []
async def machine():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await asyncio.sleep(random.uniform(0.2, 0.8))
        a = time.monotonic()
        w.write(b"%d %d\n" % (random.randrange(1, 15), random.randrange(1, 15))); await r.readline()
        t.append(time.monotonic() - a)
async def rep():
    while True:
        await asyncio.sleep(5)
        t.sort()
        with open(report, "a") as f: f.write("%d/s median %.2f ms p95 %.2f ms\n" % (len(t) / 5, 1000 * t[len(t) // 2], 1000 * t[int(len(t) * .95)]))
        t.clear()
async def main(): await asyncio.gather(rep(), *[machine() for _ in range(50)])
asyncio.run(main())
