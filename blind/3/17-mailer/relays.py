"""Four relays. East has our address on its list of too many connections: it says 421 and closes."""
import asyncio, sys
async def good(r, w):
    w.write(b"220 ready\n")
    try:
        while await r.readline():
            w.write(b"250 ok\n")
    except OSError:
        pass
n = [0]
async def bad(r, w):
    n[0] += 1
    await asyncio.sleep(0.008)
    w.write(b"421 4.7.0 too many connections from you\n")
    w.close()
async def rep(path):
    while True:
        await asyncio.sleep(5)
        open(path, "a").write("%d\n" % n[0])
async def main():
    out = []
    for name, f in (("north", good), ("south", good), ("east", bad), ("west", good)):
        s = await asyncio.start_server(f, "127.0.0.1", 0)
        out.append("%s=%d" % (name, s.sockets[0].getsockname()[1]))
    open(sys.argv[1], "w").write(" ".join(out))
    await rep(sys.argv[2])
asyncio.run(main())
