"""The customers' servers: answer a post, and close a connection that has been silent for 6 s."""
import asyncio, random, sys

async def serve(r, w):
    try:
        while True:
            head = await asyncio.wait_for(r.readuntil(b"\r\n\r\n"), 6)
            n = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await r.readexactly(n)
            await asyncio.sleep(random.uniform(0.02, 0.3))
            s = b"200 OK" if random.random() < 0.97 else b"503 Busy"
            w.write(b"HTTP/1.1 " + s + b"\r\ncontent-length: 2\r\n\r\nok")
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, OSError):
        pass
    w.close()

async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    with open(sys.argv[1], "w") as f:
        f.write(str(s.sockets[0].getsockname()[1]))
    await s.serve_forever()
asyncio.run(main())
