"""the line between the museum and the depot: carries some 800 kB a second"""
import asyncio, socket, sys

listen, to, rate = int(sys.argv[1]), int(sys.argv[2]), 800e3

async def pump(r, w, limited):
    try:
        while True:
            b = await r.read(16384)
            if not b:
                break
            w.write(b)
            await w.drain()
            if limited:
                await asyncio.sleep(len(b) / rate)
    except OSError:
        pass
    w.close()

async def serve(r, w):
    r2, w2 = await asyncio.open_connection("127.0.0.1", to)
    await asyncio.gather(pump(r, w2, True), pump(r2, w, False))

async def main():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    s.bind(("127.0.0.1", listen))
    async with await asyncio.start_server(serve, sock=s, limit=32768) as srv:
        await srv.serve_forever()

asyncio.run(main())
