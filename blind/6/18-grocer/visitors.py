"""Visitors of the shop: most of them look, put something into the basket and go away; one in four pays."""
import asyncio, random, sys, time
port, rate, burst = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
n = 0
async def visit(pause):
    global n
    n += 1
    me = n
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        w.write(b"hello u%d\n" % me)
        for _ in range(random.randrange(6, 14)):
            w.write(b"add s%d %d\n" % (random.randrange(1, 4001), random.randrange(1, 5)))
            await r.readline()
            await asyncio.sleep(random.uniform(0, pause))
        if random.random() < 0.25:
            w.write(b"checkout\n"); await r.readline()
        w.close()
    except OSError:
        pass
tasks = set()
async def main():
    for _ in range(burst // 100):
        await asyncio.gather(*[visit(0) for _ in range(100)])
    nxt = time.monotonic()
    while True:
        nxt += 1 / rate
        k = asyncio.ensure_future(visit(0.4)); tasks.add(k); k.add_done_callback(tasks.discard)
        await asyncio.sleep(max(0, nxt - time.monotonic()))
asyncio.run(main())
