"""Phones that watch a few markets, and the wall of a betting shop that watches all of them, compressed."""
import asyncio, random, sys, time, zlib
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"phone": 0, "wall": 0, "failed": 0}
bets = []
async def frames(r, kind, waiting):
    while True:
        h = await r.readexactly(5)
        n = int.from_bytes(h[:4], "big") - 1
        body = await r.readexactly(n)
        stat[kind] += 1
        if h[4] == 0 and body.startswith(b'{"bet"') and waiting:
            bets.append(time.monotonic() - waiting.pop(0))
async def stream(r):
    while True:     # the wall's renderer takes what comes
        d = await r.read(1 << 18)
        if not d:
            raise OSError("closed")
        stat["wall"] += len(d)
async def client(i, kind):
    await asyncio.sleep(i * 0.05)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            waiting = []
            if kind == "wall":
                w.write(b"deflate on\nsub 1 300\n")
            else:
                m = random.randint(1, 298)
                if i % 5 == 0:
                    w.write(b"deflate on\n")
                w.write(b"sub %d %d\n" % (m, m + random.randrange(2)))
            rd = asyncio.ensure_future(stream(r) if kind == "wall" else frames(r, kind, waiting))
            try:
                while not rd.done():
                    await asyncio.sleep(random.uniform(2, 6))
                    if kind == "phone" and i % 5:
                        waiting.append(time.monotonic())
                        w.write(b"bet %d %d\n" % (m, random.randint(2, 50)))
            finally:
                rd.cancel()
            raise OSError("closed")
        except (OSError, asyncio.IncompleteReadError):
            stat["failed"] += 1
            await asyncio.sleep(1)
async def reporter():
    while True:
        await asyncio.sleep(5)
        bets.sort()
        with open(report, "a") as f:
            f.write("phones %.0f frames/s, wall %.0f bytes/s; bets median %.1f ms max %.1f ms; failed %d\n" % (
                stat["phone"] / 5, stat["wall"] / 5, 1000 * bets[len(bets) // 2] if bets else 0, 1000 * bets[-1] if bets else 0, stat["failed"]))
        bets.clear()
        stat["phone"] = stat["wall"] = 0
async def main():
    await asyncio.gather(reporter(), client(0, "wall"), *[client(i, "phone") for i in range(1, 41)])
asyncio.run(main())
