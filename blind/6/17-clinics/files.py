"""The archive: gives a patient's file after 160 ms, to as many as ask at the same time."""
import asyncio, sys
async def serve(r, w):
    try:
        p = await r.readline()
        await asyncio.sleep(0.16)
        w.write(b"file of " + p.strip() + b" " + b"x" * 900 + b"\n"); await w.drain()
        w.close()
    except OSError: pass
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=200)
    with open(sys.argv[1] + ".new", "w") as f: f.write(str(s.sockets[0].getsockname()[1]))
    import os; os.rename(sys.argv[1] + ".new", sys.argv[1])
    await s.serve_forever()
asyncio.run(main())
