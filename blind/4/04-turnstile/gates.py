"""140 gates. Every second all of them open a connection, tell how many people went through, and hang up."""
import asyncio, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
con, ans, failed = [], [], [0]
async def gate(i):
    t = time.time()
    try:
        r, w = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 10)
        con.append(time.time() - t)
        t = time.time()
        w.write(b"gate %d %d\n" % (i, int(t) % 7))
        await asyncio.wait_for(r.readline(), 10)
        ans.append(time.time() - t)
        w.close()
    except (OSError, asyncio.TimeoutError):
        failed[0] += 1
async def rounds():
    while True:
        for i in range(140):
            asyncio.ensure_future(gate(i))
        await asyncio.sleep(1)
async def main():
    asyncio.ensure_future(rounds())
    while True:
        await asyncio.sleep(5)
        c, a = sorted(con), sorted(ans)
        con.clear(); ans.clear()
        if c and a:
            with open(report, "a") as f:
                f.write("connects/s %.0f median %.1f ms slower than 0.9 s %d max %.0f ms; answer median %.1f ms max %.1f ms; failed %d\n" % (
                    len(c) / 5, 1000 * c[len(c) // 2], sum(x > 0.9 for x in c), 1000 * c[-1], 1000 * a[len(a) // 2], 1000 * a[-1], failed[0]))
asyncio.run(main())
