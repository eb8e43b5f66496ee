"""Mail servers of the world: one that works, and one behind a tarpit (accepts connections, never says anything)."""
import asyncio, random, sys
async def good(r, w):
    try:
        w.write(b"220 mx ready\r\n")
        data = False
        while True:
            line = await r.readline()
            if not line:
                break
            if data:
                if line == b".\r\n":
                    data = False
                    await asyncio.sleep(random.uniform(0.02, 0.15))
                    w.write(b"250 taken\r\n")
                continue
            if line.startswith(b"DATA"):
                data = True
                w.write(b"354 go on\r\n")
            elif line.startswith(b"QUIT"):
                w.write(b"221 bye\r\n")
                await w.drain()
                break
            else:
                w.write(b"250 ok\r\n")
        w.close()
    except OSError:
        pass
async def tarpit(r, w):
    try:
        while await r.read(1000):
            pass
        w.close()
    except OSError:
        pass
async def main():
    a = await asyncio.start_server(good, "127.0.0.1", 0)
    b = await asyncio.start_server(tarpit, "127.0.0.1", 0)
    with open(sys.argv[1], "w") as f:
        f.write("%d,%d" % (a.sockets[0].getsockname()[1], b.sockets[0].getsockname()[1]))
    await asyncio.gather(a.serve_forever(), b.serve_forever())
asyncio.run(main())
