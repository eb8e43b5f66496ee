"""250 listeners hear the stream; 120 browsers look at the programme; 20 come and go."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"listening": 0, "bytes": 0, "pages": 0, "failed": 0}
times = []
async def listener(i):
    await asyncio.sleep(i * 0.03)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(b"GET /live/listen HTTP/1.1\r\nHost: concerts.example\r\n\r\n")
            end = time.time() + (random.uniform(10, 40) if i % 12 == 0 else 1e9)
            stat["listening"] += 1
            try:
                while time.time() < end:
                    d = await r.read(65536)
                    if not d: raise OSError
                    stat["bytes"] += len(d)
            finally:
                stat["listening"] -= 1
                w.close()
        except OSError:
            stat["failed"] += 1
        await asyncio.sleep(random.uniform(0.5, 2))
async def browser(i):
    await asyncio.sleep(i * 0.02)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(random.randint(50, 200)):
                t = time.time()
                w.write(("GET %s HTTP/1.1\r\nHost: concerts.example\r\n\r\n" % random.choice(["/live/now", "/index.html", "/programme.html"])).encode())
                n = 0
                while True:
                    l = await r.readline()
                    if not l: raise OSError
                    if l.lower().startswith(b"content-length:"): n = int(l.split(b":")[1])
                    if l in (b"\r\n", b"\n"): break
                await r.readexactly(n)
                times.append(time.time() - t); stat["pages"] += 1
                await asyncio.sleep(random.uniform(0.3, 0.9))
            w.close()
        except (OSError, asyncio.IncompleteReadError):
            stat["failed"] += 1
            await asyncio.sleep(1)
async def rep():
    while True:
        await asyncio.sleep(5)
        s = sorted(times); times.clear()
        with open(report, "a") as f: f.write("%s median %.1f p99 %.1f max %.1f ms\n" % (stat, *(1000 * s[int(len(s) * q)] if s else -1 for q in (.5, .99, .9999))))
        stat["bytes"] = stat["pages"] = 0
async def main():
    await asyncio.gather(rep(), *[listener(i) for i in range(250)], *[browser(i) for i in range(120)])
asyncio.run(main())
