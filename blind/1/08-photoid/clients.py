"""Users: 40 who look photos up (20 a second each at most), and uploads of 900 x 700 pixels, 3 a second in all."""
import asyncio, os, random, struct, sys, time

port, report = int(sys.argv[1]), sys.argv[2]
W, H = 900, 700
PHOTO = os.urandom(W * H)
lat = []

async def ask(r, w, msg):
    w.write(struct.pack(">I", len(msg)) + msg)
    n = struct.unpack(">I", await r.readexactly(4))[0]
    return await r.readexactly(n)

async def looker():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await asyncio.sleep(random.uniform(0.05, 0.3))
        t = time.monotonic()
        await ask(r, w, b"G" + struct.pack(">I", random.randrange(1, 20000)))
        lat.append(time.monotonic() - t)

async def uploader(k):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    i = k
    while True:
        await asyncio.sleep(random.uniform(0.5, 0.9))
        await ask(r, w, b"U" + struct.pack(">IHH", i, W, H) + PHOTO)
        i += 3

async def reporter():
    while True:
        await asyncio.sleep(5)
        l = sorted(lat); lat.clear()
        if l:
            with open(report, "w") as f:
                f.write("lookups/s %d p50 %.1f ms p95 %.1f ms p99 %.1f ms max %.1f ms\n" % (
                    len(l) / 5, l[len(l)//2]*1e3, l[len(l)*95//100]*1e3, l[len(l)*99//100]*1e3, l[-1]*1e3))

async def main():
    await asyncio.gather(reporter(), *[looker() for _ in range(40)], *[uploader(k) for k in range(3)])

asyncio.run(main())
