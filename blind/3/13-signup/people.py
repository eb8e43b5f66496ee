"""60 registrations a second; a few write from a department of a firm (user@department.firm.com)."""
import asyncio, random, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
times, failed = [], [0]
def word(n): return "".join(random.choice("abcdefghiklmnoprstuvw") for _ in range(n))
async def one(email):
    t = time.time()
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        w.write(("%s;%s\n" % (email, word(9))).encode())
        await asyncio.wait_for(r.readline(), 20)
        w.close()
        times.append(time.time() - t)
    except (OSError, asyncio.TimeoutError):
        failed[0] += 1
async def main():
    next_bad = time.time() + 3
    last = time.time()
    while True:
        await asyncio.sleep(random.expovariate(60))
        e = "%s.%s@%s.org" % (word(5), word(6), word(6))
        if time.time() > next_bad:
            next_bad = time.time() + random.uniform(0.3, 0.8)
            e = "%s@%s.%s.com" % (word(5), word(10), word(20))
        asyncio.ensure_future(one(e))
        if time.time() - last > 5:
            last = time.time()
            s = sorted(times); times.clear()
            with open(report, "a") as f:
                f.write("n %d failed %d median %.1f p95 %.1f max %.1f ms\n" % (len(s), failed[0], 1000 * s[len(s) // 2], 1000 * s[int(len(s) * .95)], 1000 * s[-1]))
asyncio.run(main())
