"""Readers of the gazette: 260 browsers keep their connection open and turn a page every second or so; robots come with a
connection each time and ask for old addresses too (404). Who is cut off connects again."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"pages": 0, "styles": 0, "not_found": 0, "broken": 0, "connects": 0}
took = []
async def get(r, w, path, close=False):
    t = time.monotonic()
    w.write(("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, "Connection: close\r\n" if close else "")).encode())
    head = await asyncio.wait_for(r.readuntil(b"\r\n\r\n"), 10)
    low = head.lower()
    if b"content-length:" in low: await asyncio.wait_for(r.readexactly(int(low.split(b"content-length:")[1].split(b"\r")[0])), 10)
    elif b"chunked" in low:
        while True:
            n = int((await asyncio.wait_for(r.readline(), 10)).split(b";")[0], 16)
            await asyncio.wait_for(r.readexactly(n + 2), 10)
            if n == 0: break
    took.append(time.monotonic() - t)
    return head[9:12]
async def browser():
    await asyncio.sleep(random.random() * 3)
    while True:
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port); stat["connects"] += 1
            while True:
                await asyncio.sleep(random.expovariate(1.6))
                if random.random() < 0.75: await get(r, w, "/page/%d" % random.randint(1, 5000)); stat["pages"] += 1
                else: await get(r, w, "/style%d.css" % random.randrange(20)); stat["styles"] += 1
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError): stat["broken"] += 1
        if w: w.close()
        await asyncio.sleep(1)
async def robot():
    while True:
        await asyncio.sleep(random.expovariate(3))
        w = None
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port); stat["connects"] += 1
            if await get(r, w, "/page/%d" % random.randint(1, 9000), True) == b"404": stat["not_found"] += 1
            else: stat["pages"] += 1
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError): stat["broken"] += 1
        if w: w.close()
async def rep():
    while True:
        await asyncio.sleep(2)
        x = sorted(took) or [0]; took.clear()
        with open(report, "a") as f: f.write("%s took median %.1f p95 %.1f max %.1f ms\n" % ({k: v // 2 for k, v in stat.items()}, 1e3 * x[len(x) // 2], 1e3 * x[int(len(x) * .95)], 1e3 * x[-1]))
        for k in stat: stat[k] = 0
async def main(): await asyncio.gather(rep(), *[browser() for _ in range(260)], *[robot() for _ in range(10)])
asyncio.run(main())
