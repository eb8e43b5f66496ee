"""The core bank: answers each request at once."""
import asyncio, struct, sys
async def serve(r, w):
    try:
        while True:
            kind, seq, n = struct.unpack(">BII", await r.readexactly(9))
            body = await r.readexactly(n)
            a = b"booked %d" % len(body) if kind == 1 else b"12345.67"
            w.write(struct.pack(">II", seq, len(a)) + a)
    except (asyncio.IncompleteReadError, OSError):
        pass
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    open(sys.argv[1], "w").write(str(s.sockets[0].getsockname()[1]))
    await s.serve_forever()
asyncio.run(main())
