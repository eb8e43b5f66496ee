"""Visitors of the portal: 60 that click, 250 that wait for their number, and now and then one that hangs up early."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
times, count = [], {"bad": 0, "hung_up": 0}

async def get(r, w, path):
    w.write(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).encode())
    head = (await r.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await r.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    elif b"chunked" in head:
        while True:
            n = int(await r.readuntil(b"\r\n"), 16)
            await r.readexactly(n + 2)
            if n == 0:
                break
    return int(head.split(b" ")[1]), b"connection: close" in head

async def clicker():
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(random.randrange(20, 200)):
                x = random.random()
                p = ("/api/office/%d" % random.randrange(1, 2000) if x < 0.6 else "/api/search/%d" % random.randrange(90) if x < 0.7
                     else "/style%d.css" % random.randrange(20) if x < 0.98 else "/old/page%d.html" % random.randrange(99))
                t = time.monotonic()
                s, last = await asyncio.wait_for(get(r, w, p), 10)
                times.append(time.monotonic() - t)
                if s >= 500:
                    count["bad"] += 1
                if last:        # after a 404
                    break
                if random.random() < 0.003:
                    count["hung_up"] += 1
                    w.write(b"GET /api/office/1 HTTP/1.1\r\nHo")
                    w.transport.abort()
                    break
                await asyncio.sleep(random.uniform(0.05, 0.35))
            w.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            count["bad"] += 1
            await asyncio.sleep(0.5)

async def waiter(i):
    await asyncio.sleep(i * 0.01)
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.wait_for(get(r, w, "/live/number"), 60)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            await asyncio.sleep(1)

async def reporter():
    while True:
        await asyncio.sleep(5)
        l = sorted(times); times.clear()
        with open(report, "a") as f:
            f.write("answers/s %.0f median %.1f ms p99 %.1f ms max %.1f ms bad %d hung up %d\n" % (
                len(l) / 5, *(1000 * l[int(len(l) * q)] if l else 0 for q in (0.5, 0.99)), 1000 * l[-1] if l else 0, count["bad"], count["hung_up"]))

async def main():
    await asyncio.gather(reporter(), *[clicker() for _ in range(60)], *[waiter(i) for i in range(250)])
asyncio.run(main())
