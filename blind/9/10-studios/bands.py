"""Bands that look for a studio."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
done = {"book": 0, "cancel": 0, "price": 0, "free": 0}
timeouts = 0
async def band(i):
    global timeouts
    mine = []
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.1, 0.5))
                x = random.random()
                st, sl = random.randint(1, 40), random.randrange(2000)
                if x < 0.30:
                    q = "book"; line = "book %d %d\n" % (st, sl)
                elif x < 0.42 and mine:
                    q = "cancel"; line = "cancel %d %d\n" % mine.pop()
                elif x < 0.7:
                    q = "price"; line = "price %d\n" % st
                else:
                    q = "free"; line = "free %d %d\n" % (st, sl)
                w.write(line.encode())
                a = await asyncio.wait_for(r.readline(), 6)
                if not a:
                    raise OSError("closed")
                if q == "book" and b"booked" in a:
                    mine.append((st, sl))
                done[q] += 1
        except asyncio.TimeoutError:
            timeouts += 1
            w.close()
            await asyncio.sleep(random.uniform(3, 8))
        except OSError:
            await asyncio.sleep(1)
async def reporter():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write(" ".join("%s %.1f/s" % (k, v / 5) for k, v in done.items()) + " timeouts so far %d\n" % timeouts)
        for k in done:
            done[k] = 0
async def main():
    await asyncio.gather(reporter(), *[band(i) for i in range(60)])
asyncio.run(main())
