"""110 viewers read what comes; 14 sit behind a modem and read some 2 kB a second. Who is cut off comes again."""
import asyncio, random, socket, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
stat = {"fast": 0, "slow": 0, "broken": 0}
async def viewer(slow):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(random.random() * 2)
    while True:
        s = socket.socket()
        try:
            s.setblocking(False)
            if slow: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(s, ("127.0.0.1", port))
            await loop.sock_sendall(s, b"all\n")
            while True:
                d = await loop.sock_recv(s, 1024 if slow else 65536)
                if not d: break
                stat["slow" if slow else "fast"] += len(d)
                if slow: await asyncio.sleep(0.5)
        except OSError: stat["broken"] += 1
        s.close()
        await asyncio.sleep(1)
async def rep():
    while True:
        await asyncio.sleep(2)
        with open(report, "a") as f: f.write("kB/s per viewer: fast %.1f slow %.2f broken %d\n" % (stat["fast"] / 2048 / 110, stat["slow"] / 2048 / 14, stat["broken"]))
        for k in stat: stat[k] = 0
async def main(): await asyncio.gather(rep(), *[viewer(i < 14) for i in range(124)])
asyncio.run(main())
