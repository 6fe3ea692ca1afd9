"""A server of the Model Context Protocol with one tool, `read`, which gives the text of a file: mcp_server.py FILE

It speaks JSON-RPC on its standard input and output, one message a line, and knows what agents ask for before a call.
"""
import json
import sys

TOOL = {"name": "read", "description": "Gives the notes.",
        "inputSchema": {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}}


def result_of(method, params):
    """What a request is answered; None: there is no such method."""
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        with open(sys.argv[1]) as file:
            return {"content": [{"type": "text", "text": file.read()}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue  # a notification
    result = result_of(message["method"], message.get("params"))
    answer = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
