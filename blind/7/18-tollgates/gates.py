"""160 toll gates: each reports every two seconds, at the full second, with a new connection. Measures connect and answer."""
import random, selectors, socket, sys, time
port, out = int(sys.argv[1]), sys.argv[2]
sel = selectors.DefaultSelector()
conn, whole, failed, said = [], [], 0, time.monotonic()
def q(x, p): return 1e3 * x[min(len(x) - 1, int(len(x) * p))]
def line(g): return ("%d %d %s\n" % (g, random.randrange(1, 5), " ".join("P%06d" % random.randrange(10**6) for _ in range(random.randrange(1, 9))))).encode()
def end(s):
    sel.unregister(s); s.close()
open_ = {}
def work(until):
    global failed
    while True:
        left = until - time.time()
        if left <= 0: return
        for k, ev in sel.select(left):
            s, d = k.fileobj, k.data
            try:
                if ev & selectors.EVENT_WRITE:
                    e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if e: raise OSError(e, "connect")
                    d["t1"] = time.monotonic(); s.send(line(d["g"])); sel.modify(s, selectors.EVENT_READ, d)
                else:
                    if not s.recv(100): raise OSError("closed")
                    conn.append(d["t1"] - d["t0"]); whole.append(time.monotonic() - d["t0"]); end(s); open_.pop(d["g"], None)
            except OSError:
                failed += 1; end(s); open_.pop(d["g"], None)
while True:
    work(2 * (time.time() // 2 + 1))
    socks = []
    for g in random.sample(range(1, 161), 160):
        if g in open_: continue                     # still waiting for its last answer
        s = socket.socket(); s.setblocking(False); socks.append((g, s))
    for g, s in socks:
        open_[g] = True
        d = {"g": g, "t0": time.monotonic()}; s.connect_ex(("127.0.0.1", port)); sel.register(s, selectors.EVENT_WRITE, d)
    if time.monotonic() - said > 9.9 and whole:
        said = time.monotonic(); c, a = sorted(conn), sorted(whole); conn.clear(); whole.clear()
        with open(out, "a") as f: f.write("n/s %.0f connect median %.1f p90 %.1f max %.1f ms; answer median %.1f p90 %.1f max %.1f ms; over 900 ms %d of %d; waiting %d failed %d\n" % (len(a) / 10, q(c, .5), q(c, .9), q(c, 1), q(a, .5), q(a, .9), q(a, 1), sum(v > .9 for v in a), len(a), len(open_), failed))
        failed = 0
