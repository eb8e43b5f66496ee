"""followers of a match; some phones are asleep: connected, but they do not read"""
import asyncio, random, socket, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
gaps, stat = [], {"lines": 0, "again": 0}
asleep = []

async def follower(i):
    await asyncio.sleep(random.random() * 2)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            w.write(b"follow m%d\n" % (i % 3))
            t = time.time()
            while await r.readline():
                stat["lines"] += 1
                gaps.append(time.time() - t)
                t = time.time()
        except (OSError, ValueError):
            pass
        stat["again"] += 1
        await asyncio.sleep(1)

async def sleeper(i):
    await asyncio.sleep(2 + random.random() * 3)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", port))
    s.send(b"follow m%d\n" % (i % 3))
    asleep.append(s)

async def reporter():
    while True:
        gaps.clear(); stat["lines"] = 0
        await asyncio.sleep(5)
        l = sorted(gaps)
        with open(report, "a") as f:
            f.write("%d lines/s, gap median %.1f p95 %.1f max %.1f ms, asleep %d, reconnects %d\n" % (stat["lines"] / 5,
                1e3 * l[len(l) // 2], 1e3 * l[len(l) * 95 // 100], 1e3 * l[-1], len(asleep), stat["again"]) if l else "nothing\n")

async def main():
    await asyncio.gather(reporter(), *[follower(i) for i in range(45)], *[sleeper(i) for i in range(14)])

asyncio.run(main())
