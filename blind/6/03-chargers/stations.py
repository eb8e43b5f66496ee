"""Stations plug and unplug cars; 55 operators have their page open, which asks for the overview again and again."""
import asyncio, random, sys, time
port, report, cars = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
t = {"plug": [], "unplug": [], "meter": [], "overview": []}
async def ask(c, line):
    a = time.monotonic()
    c[1].write(line.encode() + b"\n"); d = await c[0].readline()
    t[line.split()[0]].append(time.monotonic() - a)
    return d
conn = lambda: asyncio.open_connection("127.0.0.1", port)
async def fill(k):
    c = await conn()
    for i in range(k, cars, 10): await ask(c, "plug c%d" % i)
    return c
async def station(k, c):
    while True:
        await asyncio.sleep(random.uniform(0.1, 0.5))
        i = random.randrange(cars)
        if random.random() < 0.6: await ask(c, "meter c%d %d" % (i, random.randrange(60)))
        else:
            await ask(c, "unplug c%d" % i); await ask(c, "plug c%d" % i)
async def operator():
    c = await conn()
    while True:
        await ask(c, "overview"); await asyncio.sleep(0.3)
async def rep():
    while True:
        for v in t.values(): v.clear()
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for k, v in t.items():
                v.sort()
                if v: f.write("%s %.1f/s median %.1f ms p95 %.1f ms; " % (k, len(v) / 5, 1000 * v[len(v) // 2], 1000 * v[int(len(v) * .95)]))
            f.write("\n")
async def main():
    cs = await asyncio.gather(*[fill(k) for k in range(10)])
    open(report + ".filled", "w").close()
    await asyncio.gather(rep(), *[station(k, c) for k, c in enumerate(cs)], *[operator() for _ in range(55)])
asyncio.run(main())
