"""300 docking stations: bikes are locked and unlocked, phones ask where one is."""
import asyncio, random, sys, time
def line(c, n):
    if random.random() < 0.35: return "where %d" % random.randint(1, 6000)
    return "%s %d %d" % (random.choice(["lock", "unlock"]), random.randint(1, 6000), c)
port, report, N, rate, limit = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
stat = {"asked": 0, "got": 0, "late": 0, "broken": 0}
took = []
async def client(c):
    n = 0
    await asyncio.sleep(random.random() * 2)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            while True:
                await asyncio.sleep(random.expovariate(rate / N))
                n += 1
                t = time.monotonic()
                w.write(line(c, n).encode() + b"\n")
                stat["asked"] += 1
                a = await asyncio.wait_for(r.readline(), limit)
                if not a: raise OSError("closed")
                stat["got"] += 1
                took.append(time.monotonic() - t)
        except asyncio.TimeoutError: stat["late"] += 1
        except (OSError, ValueError): stat["broken"] += 1
        if w: w.close()
        await asyncio.sleep(0.3 + random.random())
async def rep():
    while True:
        await asyncio.sleep(2)
        x = sorted(took) or [0]; took.clear()
        with open(report, "a") as f:
            f.write("asked/s %.0f got/s %.0f late %d broken %d took median %.1f p95 %.1f max %.1f ms\n" % (stat["asked"] / 2, stat["got"] / 2, stat["late"], stat["broken"], 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
        for k in stat: stat[k] = 0
async def main():
    await asyncio.gather(rep(), *[client(c) for c in range(N)])
asyncio.run(main())
