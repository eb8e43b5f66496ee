# branch offices: balances on a steady connection, postings each on a connection of its own (5 s patience)
import asyncio, random, sys
port, out = int(sys.argv[1]), sys.argv[2]
count = {"bal": 0, "post": 0, "late": 0}
async def balances(i):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        w.write(b"BAL %d %s\n" % (random.randrange(1, 20000), random.choice([b"eur", b"usd", b"chf"])))
        await r.readline()
        count["bal"] += 1
        await asyncio.sleep(0.25)
async def post():
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        w.write(b"POST %d %d\n" % (random.randrange(1, 20000), random.randrange(1, 500)))
        await asyncio.wait_for(r.readline(), 5)
        count["post"] += 1
    except asyncio.TimeoutError:
        count["late"] += 1
    w.close()
async def main():
    keep = [asyncio.ensure_future(balances(i)) for i in range(20)]
    while True:
        keep.append(asyncio.ensure_future(post()))
        keep = [k for k in keep if not k.done()]
        open(out, "w").write(repr(count))
        await asyncio.sleep(0.25)
asyncio.run(main())
