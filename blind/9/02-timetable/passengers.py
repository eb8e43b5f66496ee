"""Displays and phones of the passengers."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
lat = {"next": [], "trip": [], "where": [], "alerts": []}
failed = 0

def question():
    x = random.random()
    if x < 0.55:
        return "next", "next %d %d\n" % (random.randrange(900), random.randrange(300, 1200))
    if x < 0.70:
        return "trip", "trip %d-%d\n" % (random.randint(1, 150), random.randint(1, 60))
    if x < 0.9:
        return "where", "where %d\n" % random.randint(1, 300)
    return "alerts", "alerts\n"

async def passenger():
    global failed
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.6, 2.0))
                kind, q = question()
                t = time.monotonic()
                w.write(q.encode())
                if not await asyncio.wait_for(r.readline(), 30):
                    raise OSError("closed")
                lat[kind].append(time.monotonic() - t)
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
    await asyncio.gather(reporter(), *[passenger() for _ in range(50)])
asyncio.run(main())
