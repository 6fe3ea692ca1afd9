#!/usr/bin/env python3
"""Answers and vectors by httpx, over the server's Unix socket: http_httpx.py SOCKET"""
import json
import sys

try:
    import httpx
except ImportError:
    print("skipped: python3-httpx is not installed")
    sys.exit(77)

with httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]), base_url="http://localhost", timeout=60) as client:
    model = client.get("/v1/models").json()["data"][0]["id"]
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 40, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                print(json.loads(line[6:])["choices"][0]["text"], end="", flush=True)
    answer = client.post("/v1/embeddings", json={"model": model, "input": ["a fox", "a key"]})
    answer.raise_for_status()
    print(f"\n{len(answer.json()['data'])} vectors")
