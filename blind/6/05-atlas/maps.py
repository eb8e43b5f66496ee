"""400 people look at maps; most tiles are there already, some have to be drawn."""
import asyncio, random, struct, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
t, seen = {"tile": [], "near": []}, [60000]
async def looker():
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await asyncio.sleep(random.uniform(0.2, 1.2))
        if random.random() < 0.75:
            if random.random() < 0.12: seen[0] += 1; n = seen[0]
            else: n = random.randrange(max(1, seen[0] - 55000), seen[0])
            line = "tile %d" % n
        else: line = "near %d %d" % (random.randrange(300), random.randrange(300))
        a = time.monotonic()
        w.write(line.encode() + b"\n")
        n, = struct.unpack(">I", await r.readexactly(4)); await r.readexactly(n)
        t[line[:4]].append(time.monotonic() - a)
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for k, v in t.items():
                v.sort()
                if v: f.write("%s %.0f/s median %.2f ms p99 %.1f ms max %.1f ms; " % (k, len(v) / 5, 1000 * v[len(v) // 2], 1000 * v[int(len(v) * .99)], 1000 * v[-1]))
                v.clear()
            f.write("\n")
async def main(): await asyncio.gather(rep(), *[looker() for _ in range(400)])
asyncio.run(main())
