"""Old lockers keep their connection and say nothing; 12 couriers work; the others want in now and then."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"served": 0, "timeout": 0, "refused": 0, "work": 0}
async def old(i):
    await asyncio.sleep(i * 0.01)
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(b"hello old%d\n" % i)
    await r.readline()
    await asyncio.sleep(1e6)
async def courier(i):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        w.write(b"where P%d\n" % random.randrange(4000))
        await r.readline()
        stat["work"] += 1
        await asyncio.sleep(random.uniform(0.05, 0.15))
async def new(i):
    await asyncio.sleep(6 + i * 0.1)
    while True:
        w = None
        try:
            r, w = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 5)
            w.write(b"hello new%d\n" % i)
            if not await asyncio.wait_for(r.readline(), 5):
                raise OSError
            w.write(b"put B%d N%d\n" % (i, random.randrange(10000)))
            await asyncio.wait_for(r.readline(), 5)
            stat["served"] += 1
        except asyncio.TimeoutError:
            stat["timeout"] += 1
        except OSError:
            stat["refused"] += 1
        if w:
            w.close()
        await asyncio.sleep(random.uniform(3, 9))
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write("%d %s\n" % (time.time(), stat))
        for k in stat: stat[k] = 0
async def main():
    await asyncio.gather(rep(), *[courier(i) for i in range(12)], *[old(i) for i in range(138)], *[new(i) for i in range(40)])
asyncio.run(main())
