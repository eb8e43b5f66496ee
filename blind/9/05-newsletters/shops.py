"""Shops that have mails sent."""
import asyncio, random, sys
port, report = int(sys.argv[1]), sys.argv[2]
DOMAINS = ["post.example"] * 40 + ["web.example"] * 30 + ["uni.example"] * 20 + ["home.example"] * 6 + ["oldmail.example"] * 4
async def shop(i):
    while True:
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            while True:
                await asyncio.sleep(random.uniform(0.2, 1.2))
                w.write(("mail customer%d@%s Customer%d %s\n" % (random.randrange(99999), random.choice(DOMAINS), i, random.choice(["spring", "sale", "welcome"]))).encode())
                if not await asyncio.wait_for(r.readline(), 20):
                    raise OSError("closed")
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(1)
async def reporter():
    while True:
        await asyncio.sleep(5)
        try:
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(b"status\n")
            line = await asyncio.wait_for(r.readline(), 20)
            w.close()
            with open(report, "a") as f:
                f.write("sent, waiting, idle senders: %s" % line.decode())
        except (OSError, asyncio.TimeoutError):
            pass
async def main():
    await asyncio.gather(reporter(), *[shop(i) for i in range(12)])
asyncio.run(main())
