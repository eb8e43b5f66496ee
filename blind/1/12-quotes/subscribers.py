"""50 subscribers. One of them is a laptop behind a bad line: it takes 16 KB/s."""
import asyncio, socket, sys, threading, time

port = int(sys.argv[1])

def bad_line():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    s.connect(("127.0.0.1", port))
    while s.recv(1600):
        time.sleep(0.1)

async def good():
    r, w = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    while await r.read(65536):
        await asyncio.sleep(0.05)

async def main():
    await asyncio.gather(*[good() for _ in range(49)])

threading.Thread(target=bad_line, daemon=True).start()
asyncio.run(main())
