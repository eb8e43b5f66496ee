"""45 desks and terminals: a card is read, books are lent and given back, the catalogue is asked."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
t = {"card": [], "lend": [], "back": [], "copy": []}
async def ask(r, w, line):
    a = time.monotonic()
    w.write(line.encode() + b"\n"); await r.readline()
    t[line.split()[0]].append(time.monotonic() - a)
async def desk(i):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        await asyncio.sleep(random.uniform(0.5, 1.5))
        k = random.random()
        if k < 0.6: await ask(r, w, "card %d" % random.randrange(1, 30001))
        elif k < 0.8: await ask(r, w, "copy %d" % random.randrange(1, 60001))
        elif k < 0.9: await ask(r, w, "back %d" % random.randrange(1, 180001))
        else: await ask(r, w, "lend %d %d" % (random.randrange(1, 180001), random.randrange(1, 30001)))
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for k, v in t.items():
                v.sort()
                if v: f.write("%s %d/s median %.1f ms p95 %.1f ms; " % (k, len(v) / 5, 1000 * v[len(v) // 2], 1000 * v[int(len(v) * .95)]))
                v.clear()
            f.write("\n")
async def main(): await asyncio.gather(rep(), *[desk(i) for i in range(45)])
asyncio.run(main())
