"""A gateway that sends some 120 invitations a second."""
import random, socket, sys, time
port = int(sys.argv[1])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
start = time.time()
while True:
    n += 1
    h = ["Via: SIP/2.0/UDP gw%d.example;branch=z9hG4bK%08x" % (n % 9, random.getrandbits(32)), "Call-ID: %032x" % random.getrandbits(128),
         "From: <sip:%d@gw.example>" % random.randrange(10**9), "Contact: <sip:gw%d.example>" % (n % 9), "Max-Forwards: 70",
         "User-Agent: Gate 4.2", "CSeq: 1 INVITE", "Allow: INVITE, ACK, BYE, CANCEL, OPTIONS"]
    s.sendto(("INVITE %d\r\n" % random.randrange(10**8) + "\r\n".join(h)).encode(), ("127.0.0.1", port))
    time.sleep(max(0, start + n / 120 - time.time()))
