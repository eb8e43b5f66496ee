"""Five platforms; each sends a parcel of bids, waits for the answer, and sends the next at its time."""
import asyncio, random, struct, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
t = []
async def platform(k):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    nxt, price = time.monotonic(), 100
    while True:
        big = random.random() < 0.06
        n = 2500 if big else random.randrange(40, 160)
        price += 3
        b = b"".join(struct.pack(">HII", random.randrange(1, 3001), price + random.randrange(50), random.randrange(10**6)) for _ in range(n))
        a = time.monotonic()
        w.write(struct.pack(">I", len(b)) + b); await r.readexactly(8)
        t.append((big, time.monotonic() - a))
        nxt += 0.06
        await asyncio.sleep(max(0, nxt - time.monotonic()))
async def rep():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            for big in (False, True):
                v = sorted(x for b, x in t if b == big)
                if v: f.write("%s parcels %.1f/s median %.1f ms max %.1f ms; " % ("big" if big else "small", len(v) / 5, 1000 * v[len(v) // 2], 1000 * v[-1]))
            f.write("\n"); t.clear()
async def main(): await asyncio.gather(rep(), *[platform(k) for k in range(5)])
asyncio.run(main())
