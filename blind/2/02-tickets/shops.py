"""Web shops: 24 connections that ask for seats, with a pause after each answer."""
import asyncio, random, struct, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
times = []

async def shop():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await asyncio.sleep(random.uniform(0.02, 0.10))
        t = time.monotonic()
        b = struct.pack(">HB", random.randrange(1000), random.randrange(9))
        w.write(struct.pack(">I", len(b)) + b)
        n = struct.unpack(">I", await r.readexactly(4))[0]
        await r.readexactly(n)
        times.append(time.monotonic() - t)

async def reporter():
    while True:
        await asyncio.sleep(5)
        l = sorted(times); times.clear()
        with open(report, "a") as f:
            f.write("answers/s %.0f median %.0f ms p95 %.0f ms max %.0f ms\n" % (
                len(l) / 5, *(1000 * l[int(len(l) * q)] if l else 0 for q in (0.5, 0.95)), 1000 * l[-1] if l else 0))

async def main():
    await asyncio.gather(reporter(), *[shop() for _ in range(24)])
asyncio.run(main())
