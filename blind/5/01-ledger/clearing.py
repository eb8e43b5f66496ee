# the clearing house: acknowledges batches; from the fifth on it takes the data and says nothing
import socket, sys, threading
srv = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1], "w").write(str(srv.getsockname()[1]))
n = 0
keep = []
while True:
    c, _ = srv.accept()
    n += 1
    keep.append(c)
    def serve(c=c, n=n):
        f = c.makefile("rb")
        if n <= 4:
            f.readline()
            c.sendall(b"ACK %d\n" % (n * 17))
        while f.readline():
            pass
    threading.Thread(target=serve, daemon=True).start()
