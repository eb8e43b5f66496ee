"""Players: a browser asks for its view 20 times a second."""
import asyncio, random, sys, time
port, report, players = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
lat = {"view": [], "score": []}
failed = 0
async def player(i):
    global failed
    await asyncio.sleep(i * 0.05)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            n = 0
            while True:
                n += 1
                t = time.monotonic()
                q, kind = ("view %d\n" % i, "view") if n % 20 else ("score %d\n" % i, "score")
                w.write(q.encode())
                if n % 30 == 0:
                    w.write(b"steer %d %d\n" % (i, random.randrange(628)))
                    await asyncio.wait_for(r.readline(), 30)
                if not await asyncio.wait_for(r.readline(), 30):
                    raise OSError("closed")
                d = time.monotonic() - t
                lat[kind].append(d)
                await asyncio.sleep(max(0, 0.05 - d))
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
    await asyncio.gather(reporter(), *[player(i) for i in range(1, players + 1)])
asyncio.run(main())
