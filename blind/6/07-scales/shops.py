"""Scales that weigh, and the watchdog of the shops' routers: it opens a connection to see whether the port is there, and leaves it lying."""
import asyncio, random, resource, ssl, sys, time
port, report, rate, burst = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (min(16000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
ctx = ssl.create_default_context(); ctx.check_hostname = False; ctx.verify_mode = ssl.CERT_NONE
t, hs, lying = [], [], []
async def scale(i):
    await asyncio.sleep(i * 0.1)
    while True:
        a = time.monotonic()
        r, w = await asyncio.open_connection("127.0.0.1", port, ssl=ctx)
        hs.append(time.monotonic() - a)
        for _ in range(random.randrange(10, 40)):
            await asyncio.sleep(random.uniform(0.5, 2))
            a = time.monotonic()
            w.write(b"scale%d plu%d %d\n" % (i, random.randrange(800), random.randrange(20, 3000))); await r.readline()
            t.append(time.monotonic() - a)
        w.close()
        await asyncio.sleep(random.uniform(0, 3))
async def watchdog():
    for k in range(burst):
        lying.append(await asyncio.open_connection("127.0.0.1", port))
        if k % 10 == 9: await asyncio.sleep(0.1)
    while True:
        lying.append(await asyncio.open_connection("127.0.0.1", port))
        await asyncio.sleep(1 / rate)
async def rep():
    while True:
        await asyncio.sleep(5); t.sort(); hs.sort()
        with open(report, "a") as f: f.write("lying %d weighed %d/s median %.1f ms max %.1f ms; handshakes %d max %.0f ms\n" % (len(lying), len(t) / 5, 1000 * t[len(t) // 2] if t else 0, 1000 * t[-1] if t else 0, len(hs), 1000 * hs[-1] if hs else 0))
        t.clear(); hs.clear()
async def main(): await asyncio.gather(rep(), watchdog(), *[scale(i) for i in range(40)])
asyncio.run(main())
