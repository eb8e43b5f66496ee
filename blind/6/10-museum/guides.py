"""Tablets in the rooms: what stands here, how warm is it; the store moves objects."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
t = {"room": [], "move": [], "climate": []}
async def guide(i):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await asyncio.sleep(random.uniform(0.3, 0.9))
        k = random.random()
        line = "room %d" % random.randrange(140) if k < 0.6 else "climate %d" % random.randrange(140) if k < 0.8 else "move %d %d" % (random.randrange(1, 15001), random.randrange(140))
        a = time.monotonic()
        w.write(line.encode() + b"\n"); await r.readline()
        t[line.split()[0]].append(time.monotonic() - a)
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for k, v in t.items():
                v.sort()
                if v: f.write("%s %.1f/s median %.1f ms p95 %.1f ms; " % (k, len(v) / 5, 1000 * v[len(v) // 2], 1000 * v[int(len(v) * .95)]))
                v.clear()
            f.write("\n")
async def main(): await asyncio.gather(rep(), *[guide(i) for i in range(45)])
asyncio.run(main())
