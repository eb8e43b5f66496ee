# charging points: announce themselves, take the profile, then a heartbeat each 6 s; when cut off they come back at once
import asyncio, random, sys
port, out, n = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
count = {"hello": 0, "beat": 0, "cut": 0}
async def point(i):
    await asyncio.sleep(random.random() * 6)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            w.write(b"HELLO %d\n" % i)
            await r.readline(); await r.readline()
            count["hello"] += 1
            while True:
                cut = asyncio.ensure_future(r.readline())
                done, _ = await asyncio.wait({cut}, timeout=6 + random.random() * 0.2)
                if not done:
                    w.write(b"BEAT %d\n" % random.randrange(10, 40))
                if await cut == b"":
                    raise ConnectionError
                count["beat"] += 1
        except OSError:
            count["cut"] += 1
            try: w.close()
            except Exception: pass
            await asyncio.sleep(random.random() * 0.2)
async def main():
    keep = [asyncio.ensure_future(point(i)) for i in range(n)]
    while True:
        open(out, "w").write(repr(count))
        await asyncio.sleep(0.5)
asyncio.run(main())
