"""The venue's inventory service: answers a LAYOUT request after 70..110 ms, any number in parallel."""
import asyncio, random, sys

LAYOUT = (",".join("R%dS%d" % (r, s) for r in range(20) for s in range(30)) + "\n").encode()

async def serve(reader, writer):
    try:
        while await reader.readline():
            await asyncio.sleep(random.uniform(0.07, 0.11))
            writer.write(LAYOUT)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with open(sys.argv[1], "w") as f:
        f.write(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()

asyncio.run(main())
