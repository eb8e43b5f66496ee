"""The partner's API: HTTPS with keep-alive (nobody uses it)."""
import asyncio, random, ssl, sys
port_file, cert, key, report = sys.argv[1:5]
stat = {"connections": 0, "requests": 0}
async def serve(r, w):
    stat["connections"] += 1
    try:
        while True:
            line = await r.readline()
            if not line:
                break
            close = False
            while True:
                h = await r.readline()
                if h in (b"\r\n", b""):
                    break
                close = close or h.lower().startswith(b"connection: close")
            stat["requests"] += 1
            body = random.choice([b'{"verdict":"good"}', b'{"verdict":"good"}', b'{"verdict":"no such street"}'])
            w.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            await w.drain()
            if close:
                break
        w.close()
    except (OSError, ssl.SSLError):
        pass
async def reporter():
    while True:
        await asyncio.sleep(5)
        with open(report, "a") as f:
            f.write("connections %.1f/s requests %.1f/s\n" % (stat["connections"] / 5, stat["requests"] / 5))
        stat["connections"] = stat["requests"] = 0
async def main():
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(cert, key)
    s = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=c, backlog=256)
    with open(port_file, "w") as f:
        f.write(str(s.sockets[0].getsockname()[1]))
    await asyncio.gather(s.serve_forever(), reporter())
asyncio.run(main())
