"""phones of the patients: a visit opens a connection, asks a few things within some seconds and closes it"""
import asyncio, random, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
first, later, stat = [], [], {"visits": 0, "lost": 0}

async def patient(i):
    await asyncio.sleep(random.random() * 6)
    while True:
        w = None
        try:
            t0 = time.time()
            r, w = await asyncio.open_connection("127.0.0.1", port)
            for k in range(7):
                t = time.time() if k else t0
                w.write(b"appointment p%d\n" % random.randrange(20000))
                if not await r.readline():
                    raise OSError("closed")
                (later if k else first).append(time.time() - t)
                await asyncio.sleep(0.4 + random.random())
            stat["visits"] += 1
        except OSError:
            stat["lost"] += 1
        finally:
            if w:
                w.close()
        await asyncio.sleep(random.random())

def say(l):
    l.sort()
    return "%d median %.1f p95 %.1f max %.1f ms" % (len(l), 1e3 * l[len(l) // 2], 1e3 * l[len(l) * 95 // 100], 1e3 * l[-1]) if l else "none"

async def reporter():
    while True:
        first.clear(); later.clear()
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write("first answers %s; later answers %s; %s\n" % (say(first), say(later), stat))

async def main():
    await asyncio.gather(reporter(), *[patient(i) for i in range(430)])

asyncio.run(main())
