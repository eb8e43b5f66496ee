"""Players: 240 at a time, they come, play for 15 s, and go. At the start the players of the evening before, in a hurry."""
import asyncio, random, sys
port, rate, before = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
async def play(seconds):
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        k = asyncio.ensure_future(drain(r))
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(random.uniform(0.2, 3 if seconds > 1 else 0.4)); w.write(b"hit\n" if random.random() < 0.5 else b"look\n")
        w.close(); k.cancel()
    except OSError: pass
async def drain(r):
    while await r.read(65536): pass
tasks = set()
def go(c): t = asyncio.ensure_future(c); tasks.add(t); t.add_done_callback(tasks.discard)
async def main():
    for _ in range(before // 60):
        for _ in range(60): go(play(0.3))
        await asyncio.sleep(0.25)
    while True:
        go(play(15)); await asyncio.sleep(random.expovariate(rate))
asyncio.run(main())
