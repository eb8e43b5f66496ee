"""bidders: some bid and look, most wait for news of a lot and give up after a second"""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
lat, stat = [], {"watch": 0, "news": 0, "again": 0}

async def bidder(i):
    await asyncio.sleep(random.random() * 2)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                t = time.time()
                lot = random.randrange(20)
                w.write((random.choice(["lot %d", "bid %d " + str(random.randrange(1000))]) % lot + "\n").encode())
                if not await r.readline():
                    raise OSError("closed")
                lat.append(time.time() - t)
                await asyncio.sleep(random.expovariate(4))
        except OSError:
            stat["again"] += 1
        finally:
            if w:
                w.close()
        await asyncio.sleep(1)

async def watcher(i):
    await asyncio.sleep(random.random() * 2)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(("watch %d\n" % random.randrange(4000)).encode())
            stat["watch"] += 1
            if await asyncio.wait_for(r.readline(), 0.6 + random.random()):
                stat["news"] += 1
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            if w:
                w.close()
        await asyncio.sleep(random.random() * 0.4)

async def reporter():
    while True:
        lat.clear()
        await asyncio.sleep(5)
        l = sorted(lat)
        with open(report, "a") as f:
            if l:
                f.write("%.0f/s median %.1f p95 %.1f max %.1f ms %s\n" % (len(l) / 5, 1e3 * l[len(l) // 2],
                    1e3 * l[len(l) * 95 // 100], 1e3 * l[-1], stat))
            else:
                f.write("no answers %s\n" % stat)

async def main():
    await asyncio.gather(reporter(), *[bidder(i) for i in range(20)], *[watcher(i) for i in range(45)])

asyncio.run(main())
