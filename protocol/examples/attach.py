#!/usr/bin/env python3
"""A whole glrs client: attach.py [--id SESSION] MESSAGE

Makes a session in this directory (or joins one), sends the message, prints the answer as it
streams, asks y/n for what needs permission, stops when nothing runs. Python 3 and nothing else.
"""
import argparse, collections, json, os, socket, sys, uuid

args = argparse.ArgumentParser()
args.add_argument("--id", help="join this session instead of making one")
args.add_argument("message")
args = args.parse_args()

path = {name: value for name, value in os.environ.items() if value.startswith("/")}
if "GLRS_SOCKET" not in path:
    place = path.get("GLRS_HOME") or path.get("XDG_RUNTIME_DIR", "/tmp") + "/glrs"
    if "GLRS_HOME" not in path and "XDG_RUNTIME_DIR" not in path:
        place += f"-{os.getuid()}"
    path["GLRS_SOCKET"] = place + "/glrsd.sock"
sock = socket.socket(socket.AF_UNIX)
sock.connect(path["GLRS_SOCKET"])
lines = sock.makefile("r", encoding="utf-8", newline="\n")  # lines end at \n and nowhere else
events, calls, printed, running = collections.deque(), 0, {}, False

def receive():
    line = lines.readline()
    return json.loads(line) if line else sys.exit("the daemon is gone; start again with --id")

def call(method, **params):
    global calls
    calls += 1
    message = {"jsonrpc": "2.0", "id": calls, "method": method, "params": params}
    sock.sendall(json.dumps(message).encode() + b"\n")
    while (reply := receive()).get("id") != calls:
        events.append(reply["params"])  # an event that was on its way: looked at after the reply
    return reply["result"] if "result" in reply else sys.exit(reply["error"]["message"])

def show(of, offset, text):
    """Prints what is new of a piece: offsets count UTF-8 bytes, and repeats are possible."""
    have, data = printed.get(of, 0), text.encode()
    if offset + len(data) > have:
        print(data[max(0, have - offset):].decode(), end="", flush=True)
        printed[of] = offset + len(data)

def ask(request):
    print(f"\n{request['tool']} asks: {request['body']}\ny/n? ", end="", flush=True)
    decision = "allow" if sys.stdin.readline().strip() in ("y", "yes") else "deny"
    call("request/answer", id=session, request=request["request"], decision=decision)

def attach():
    snapshot = call("session/attach", id=session, tail=0)
    for piece in snapshot["inFlight"]:
        if piece["piece"] == "assistant":
            show(piece["of"], 0, piece["text"])
    for request in snapshot["requests"]:
        ask(request)

call("hello", client={"name": "attach.py", "kind": "script"}, protocol={"min": 1, "max": 1})
session = args.id or call("session/new", cwd=os.getcwd(), env=dict(os.environ))["session"]["id"]
attach()
call("session/send", id=session, text=args.message, key=str(uuid.uuid4()))
while True:
    event = events.popleft() if events else receive()["params"]
    kind, entry = event["kind"], event.get("entry", {})
    if kind == "delta" and event["piece"] == "assistant":
        show(event["of"], event["offset"], event["text"])
    elif kind == "entry" and entry["type"] == "assistant":
        show(event.get("of"), 0, entry["text"] + "\n")
    elif kind == "entry" and entry["type"] in ("notice", "error"):
        print(entry["text"], file=sys.stderr)
    elif kind == "request":
        ask(event["request"])
    elif kind == "state":
        before, running = running, event["state"]["name"] == "running"
        if before and not running:
            break
    elif kind in ("lagged", "closed"):
        attach()
print(f"glrs attach {session}", file=sys.stderr)
