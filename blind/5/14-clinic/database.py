# the database: GET is answered after 3 ms; a SUM goes through a table that has grown over the years: 0.6 s
import asyncio, sys
async def conn(r, w):
    while True:
        q = await r.readline()
        if not q: break
        await asyncio.sleep(0.6 if q.startswith(b"SUM") else 0.003)
        w.write(b"row %d\n" % len(q))
async def main():
    s = await asyncio.start_server(conn, "127.0.0.1", 0)
    open(sys.argv[1], "w").write(str(s.sockets[0].getsockname()[1]))
    await s.serve_forever()
asyncio.run(main())
