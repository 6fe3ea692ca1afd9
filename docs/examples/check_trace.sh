#!/bin/sh
# check_trace.sh PYTHON EXAMPLE MODEL: the trace is JSON, has all steps and every operation within one of them.
set -eu
"$2" "$3" 2 | "$1" -c '
import json, sys
events = json.load(sys.stdin)
steps = [e for e in events if e["tid"] == 0]
assert [e["name"] for e in steps] == ["prefill"] + 7 * ["decode"], steps
operations = [e for e in events if e["tid"] == 1]
assert len(operations) > 8 * 20 and any(e["name"] == "attn_qkv 0" for e in operations), operations
for e in operations:
    inside = [s for s in steps if s["ts"] - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.01]
    assert len(inside) == 1, e
assert any(e["tid"] >= 2 for e in events)
'
