"""Clients: each has one connection, sends a line, waits for the answer, thinks, and goes on. Reports every 3 s."""
import asyncio, random, sys, time

port, report, conns, think = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
lines = [l for l in open(sys.argv[5], encoding="utf-8").read().split("\n") if l]
lat, fails = [], [0]

async def client(i):
    await asyncio.sleep(random.random() * 2)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                l = random.choice(lines).replace("%C", str(i)).replace("%R", str(random.randrange(1, 30000)))
                t = time.time()
                w.write(l.encode() + b"\n")
                if not await asyncio.wait_for(r.readline(), 20):
                    raise OSError("closed")
                lat.append(time.time() - t)
                await asyncio.sleep(random.uniform(0.5, 1.5) * think)
        except (OSError, asyncio.TimeoutError):
            fails[0] += 1
            await asyncio.sleep(1)

async def main():
    ts = [asyncio.ensure_future(client(i)) for i in range(conns)]
    while True:
        await asyncio.sleep(3)
        l = sorted(lat)
        lat.clear()
        with open(report, "a") as f:
            f.write("answers/s %.0f median %.1f ms p95 %.1f ms max %.1f ms failed %d\n" % (
                len(l) / 3, *((1000 * l[len(l) // 2], 1000 * l[len(l) * 19 // 20], 1000 * l[-1]) if l else (0, 0, 0)), fails[0]))

asyncio.run(main())
