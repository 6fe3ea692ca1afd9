#!/usr/bin/env python3
"""Masks beside LLGuidance's: the same schemas, instances and vocabulary, by turns, one thread each.

    masks.py TROUPE MODEL.gguf CASES.jsonl [--rounds 3]

CASES has a case in each line, as `troupe schema check` reads them. For llguidance and numpy, from PyPI, give the Python of
an environment that has them. Instances are written compactly, with the members in the order of `properties`; what one
of the two refuses for its order counts for neither. The last table has the medians over the rounds, and their ratios.
"""
import argparse
import json
import statistics
import struct
import subprocess
import sys
import time


def gguf_tokens(path):
    """(bytes of each token, ids of control tokens, id of eos) of a SentencePiece or byte-level vocabulary."""
    with open(path, "rb") as file:
        data = file.read(64 << 20)
    at = 8
    _, pairs = struct.unpack_from("<QQ", data, at)
    at += 16
    sizes = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def text():
        nonlocal at
        length, = struct.unpack_from("<Q", data, at)
        at += 8 + length
        return data[at - length:at]

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(inner) for _ in range(count)]
        found, = struct.unpack_from(sizes[kind], data, at)
        at += struct.calcsize(sizes[kind])
        return found

    metadata = {}
    for _ in range(pairs):
        key = text().decode()
        kind, = struct.unpack_from("<I", data, at)
        at += 4
        metadata[key] = value(kind)
    kinds = metadata["tokenizer.ggml.token_type"]
    is_bytes = metadata["tokenizer.ggml.model"] == b"gpt2"
    letters = byte_letters() if is_bytes else {}
    tokens = []
    for token, kind in zip(metadata["tokenizer.ggml.tokens"], kinds):
        if kind == 6:
            tokens.append(bytes([int(token[3:5], 16)]))
        elif kind in (2, 3, 5):
            tokens.append(b"\xff" + token)
        elif is_bytes:
            tokens.append(bytes(letters[letter] for letter in token.decode()))
        else:
            tokens.append(token.decode().replace("\u2581", " ").encode())
    control = [number for number, kind in enumerate(kinds) if kind in (2, 3, 5)]
    return tokens, control, metadata["tokenizer.ggml.eos_token_id"]


def byte_letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


class Vocabulary:
    def __init__(self, path):
        self.tokens, self.special_token_ids, self.eos_token_id = gguf_tokens(path)
        self.bos_token_id = None
        special = set(self.special_token_ids)
        self.ids = {}
        for number, token in enumerate(self.tokens):
            if number not in special:
                self.ids.setdefault(token, number)
        self.longest = max(map(len, self.ids))

    def __call__(self, text):
        text = text.encode() if isinstance(text, str) else text
        ids, at = [], 0
        while at < len(text):
            for end in range(min(len(text), at + self.longest), at, -1):
                if text[at:end] in self.ids:
                    ids.append(self.ids[text[at:end]])
                    at = end
                    break
            else:
                raise ValueError(f"no token for {text[at:at + 1]!r}")
        return ids


def in_order(schema, value):
    """Members in the order of `properties`, where a schema says so itself."""
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [in_order(items, item) for item in value]
    if not isinstance(value, dict):
        return value
    listed = schema.get("properties", {}) if isinstance(schema, dict) else {}
    listed = listed if isinstance(listed, dict) else {}
    names = [name for name in listed if name in value] + [name for name in value if name not in listed]
    return {name: in_order(listed.get(name), value[name]) for name in names}


def spread(times):
    times = sorted(times)
    pick = lambda share: times[min(len(times) - 1, int(share * len(times)))]  # noqa: E731
    return {"mean": sum(times) / len(times), "p50": pick(0.5), "p99": pick(0.99), "p999": pick(0.999), "max": times[-1]}


def llguidance_run(cases, tokenizer, vocabulary):
    import llguidance
    import llguidance.numpy
    bitmask = llguidance.numpy.allocate_token_bitmask(1, len(vocabulary.tokens))
    result = {"schemas_compiled": 0, "valid": 0, "valid_refused": 0, "invalid": 0, "invalid_accepted": 0}
    masks, compiles = [], []
    for case in cases:
        begin = time.perf_counter()
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(case["schema"]), {"whitespace_flexible": False})
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        except ValueError:
            continue
        if matcher.is_error():
            continue
        llguidance.numpy.fill_next_token_bitmask(matcher, bitmask, 0)
        compiles.append((time.perf_counter() - begin) * 1e6)
        result["schemas_compiled"] += 1
        for test in case["tests"]:
            matcher.reset()
            text = json.dumps(in_order(case["schema"], test["data"]), separators=(",", ":"), ensure_ascii=False)
            accepted = True
            for token in vocabulary(text):
                begin = time.perf_counter()
                llguidance.numpy.fill_next_token_bitmask(matcher, bitmask, 0)
                masks.append((time.perf_counter() - begin) * 1e6)
                if not (bitmask[0, token // 32] >> (token % 32)) & 1 or not matcher.consume_token(token):
                    accepted = False
                    break
            accepted = accepted and matcher.is_accepting()
            kind = "valid" if test["valid"] else "invalid"
            result[kind] += 1
            if accepted != test["valid"]:
                result["valid_refused" if test["valid"] else "invalid_accepted"] += 1
    return result | {"mask_us": spread(masks), "compile_us": spread(compiles)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("troupe")
    parser.add_argument("model")
    parser.add_argument("cases")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        import llguidance
    except ImportError:
        sys.exit("masks.py: this Python has no llguidance; pip install llguidance numpy, in an environment of their own")
    with open(options.cases, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file if line.strip()]
    vocabulary = Vocabulary(options.model)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
    runs = {"troupe": [], "llguidance": []}
    for _ in range(options.rounds):
        done = subprocess.run([options.troupe, "schema", "check", "--json", "-m", options.model, options.cases],
                              capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            sys.exit(done.stderr)
        runs["troupe"].append(json.loads(done.stdout))
        runs["llguidance"].append(llguidance_run(cases, tokenizer, vocabulary))
    print(f"{len(cases)} schemas, {len(vocabulary.tokens)} tokens, llguidance {llguidance.__version__}")
    for name, all_of in runs.items():
        one = all_of[0]
        print(f"{name}: {one['schemas_compiled']} compiled, {one['valid_refused']} of {one['valid']} valid refused, "
              f"{one['invalid_accepted']} of {one['invalid']} invalid accepted")
    print(f"{'us':12}{'troupe':>12}{'llguidance':>12}{'ratio':>8}")
    for what in ("mask_us", "compile_us"):
        for part in ("mean", "p50", "p99", "p999", "max"):
            ours, theirs = (statistics.median(run[what][part] for run in runs[name]) for name in ("troupe", "llguidance"))
            print(f"{what[:-3] + ' ' + part:12}{ours:12.1f}{theirs:12.1f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
