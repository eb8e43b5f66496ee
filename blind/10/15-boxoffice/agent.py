"""The tracing agent of the host: takes a trace, stores it, says so."""
import asyncio, random, sys

async def client(r, w):
    try:
        while True:
            n = int.from_bytes(await r.readexactly(4), "big")
            await r.readexactly(n)
            await asyncio.sleep(random.uniform(0.010, 0.013))
            w.write(b"\0\0\0\2ok")
            await w.drain()
    except (OSError, asyncio.IncompleteReadError):
        w.close()

async def main():
    s = await asyncio.start_server(client, "127.0.0.1", 0)
    open(sys.argv[1] + ".new", "w").write(str(s.sockets[0].getsockname()[1]))
    import os
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    await s.serve_forever()

asyncio.run(main())
