"""The database (2..5 ms a statement) and the carrier's label service, which is slow these days (4..7 s a label)."""
import asyncio, random, sys

def answering(lo, hi, text):
    async def serve(reader, writer):
        try:
            while await reader.readline():
                await asyncio.sleep(random.uniform(lo, hi))
                writer.write(text)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
    return serve

async def main():
    db = await asyncio.start_server(answering(0.002, 0.005, b"OK 1 row\n"), "127.0.0.1", 0)
    carrier = await asyncio.start_server(answering(4, 7, b"LABEL-4711\n"), "127.0.0.1", 0)
    with open(sys.argv[1], "w") as f:
        f.write("%d %d" % tuple(s.sockets[0].getsockname()[1] for s in (db, carrier)))
    await asyncio.gather(db.serve_forever(), carrier.serve_forever())

asyncio.run(main())
