"""troupe pull, list, rm and prune, and -m NAME, against servers of this machine that misbehave.

    pull_test.py TROUPE SOURCE [TEST...]
"""
import email.utils
import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from hub import Hub, Served, sha256, split_gguf

TROUPE, SOURCE = map(os.path.abspath, sys.argv[1:3])
KILLS = int(os.environ.get("TROUPE_PULL_KILLS", "200"))
TALES = open(os.path.join(SOURCE, "models/tales-5m-tq2_0.gguf"), "rb").read()


def golden(name):
    with open(os.path.join(SOURCE, "tests/data/golden", name), "rb") as file:
        return file.read()


class Done:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout.decode(), done.stderr.decode()
        self.all = self.out + self.err


class PullTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe-pull.", dir=os.environ.get("TMPDIR") or None)
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.store = os.path.join(self.folder, "data/troupe/models")
        self.runtime = os.path.join(self.folder, "run")
        os.mkdir(self.runtime)
        os.chmod(self.runtime, 0o700)
        self.hub = self.start_hub()

    def start_hub(self, certificate=None):
        hub = Hub(certificate)
        self.addCleanup(hub.close)
        return hub

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": self.folder, "XDG_DATA_HOME": os.path.join(self.folder, "data"), "XDG_RUNTIME_DIR": self.runtime,
                "HF_ENDPOINT": self.hub.url, "OLLAMA_REGISTRY": self.hub.url, "no_proxy": "*", **more}

    def start(self, *words, **more):
        return subprocess.Popen([TROUPE, *words], env=self.environment(**more), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def troupe(self, *words, **more):
        return Done(subprocess.run([TROUPE, *words], env=self.environment(**more), stdin=subprocess.DEVNULL,
                                   capture_output=True, timeout=120))

    def pulled(self, *words, **more):
        done = self.troupe("pull", *words, **more)
        self.assertEqual(done.code, 0, done.all)
        return done

    def refused(self, code, *parts, words, **more):
        done = self.troupe("pull", *words, **more)
        self.assertEqual(done.code, code, done.all)
        for part in parts:
            self.assertIn(part, done.err)
        self.assertEqual(self.models(), [])
        return done

    def models(self):
        done = self.troupe("list", "--json")
        self.assertEqual(done.code, 0, done.all)
        return json.loads(done.out)

    def names(self):
        return [model["name"] for model in self.models()]

    def files(self, below):
        folder = os.path.join(self.store, below)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def serve(self, data=TALES, path="/tales.gguf", **more):
        self.hub.paths[path] = Served(data, **{"etag": '"1"', **more})
        return self.hub.url + path

    def content(self, name):
        (model,) = [model for model in self.models() if model["name"] == name]
        data = b""
        for file in model["files"]:
            with open(os.path.join(os.path.dirname(model["path"]), file["name"]), "rb") as opened:
                data += opened.read()
        return data

    # One file.

    def test_a_file_comes_in_parts_and_is_found_by_its_name(self):
        done = self.pulled(self.serve())
        self.assertIn("pulled tales: 1.9 MB, bitnet", done.out)
        self.assertEqual(self.content("tales"), TALES)
        self.assertGreater(len(self.hub.ranges_of("/tales.gguf")), 4)
        self.assertEqual(self.files("partial"), ["in-use", f"url-{sha256((self.hub.url + '/tales.gguf').encode())}.lock"])
        (model,) = self.models()
        self.assertEqual(model["files"][0]["sha256"], sha256(TALES))
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.store, "blobs", "sha256-" + sha256(TALES))).st_mode), 0o644)
        for words in (["inspect", "tales"], ["tokenize", "-m", "tales", "Once"], ["inspect", "-m", "TALES"],
                      ["serve", "-m", "tales", "--check"], ["serve", "-m", "one=tales", "--draft", "tales", "--check"],
                      ["inspect", "-hf", "tales"]):
            self.assertEqual(self.troupe(*words).code, 0, self.troupe(*words).all)

    def test_what_was_pulled_is_served_on_request_by_its_name(self):
        empty = self.troupe("serve", "--models-store")
        self.assertEqual((empty.code, "`troupe list` shows none that can be served" in empty.err), (66, True), empty.all)
        self.pulled(self.serve())
        self.pulled(self.serve(golden("llama.gguf"), "/other.gguf"), "--name", "mine")
        checked = self.troupe("serve", "--models-store", "--check")
        self.assertEqual(checked.code, 0, checked.all)
        self.assertIn("2 models (mine, tales)", checked.out)
        # What -m names is not there a second time.
        self.assertIn("2 models (one, mine)", self.troupe("serve", "-m", "one=tales", "--models-store", "--check").out)

    def test_an_unchanged_file_is_not_fetched_again_and_a_changed_one_replaces_it(self):
        url = self.serve()
        self.pulled(url)
        before = len(self.hub.requests)
        self.assertIn("is up to date", self.pulled(url).out)
        self.assertEqual(len(self.hub.requests), before + 1)
        self.assertEqual(self.files("partial"), [f"{'in-use'}", f"url-{sha256(url.encode())}.lock"])
        other = golden("llama.gguf")
        self.hub.paths["/tales.gguf"] = Served(other, etag='"2"')
        self.assertIn("pulled tales", self.pulled(url).out)
        self.assertEqual(self.content("tales"), other)
        self.assertEqual(self.files("blobs"), ["sha256-" + sha256(other)])  # the old one is gone
        self.assertEqual(len(self.files("files")), 1)

    def test_a_server_without_ranges_is_read_in_one_stream(self):
        self.pulled(self.serve(ranges=False))
        self.assertEqual(self.content("tales"), TALES)
        self.assertEqual(len(self.hub.ranges_of("/tales.gguf")), 1)

    def test_a_name_can_be_given_and_is_one_models(self):
        url = self.serve()
        self.pulled(url, "--name", "mine")
        self.assertEqual(self.names(), ["mine"])
        other = self.serve(golden("llama.gguf"), "/mine.gguf")
        done = self.troupe("pull", other)
        self.assertEqual((done.code, self.names()), (2, ["mine"]))
        self.assertIn("is in the store already", done.err)
        for bad in ("../x", "a b", "/x", "x" * 300, "a=b", "-x", "a\x1bb", "$(touch x)", "a;b"):
            self.assertEqual(self.troupe("pull", url, f"--name={bad}").code, 2, bad)

    def test_what_was_cut_goes_on(self):
        served = Served(TALES, etag='"1"', serve=lambda handler, served: handler.cut_after(served, 100_000))
        self.hub.paths["/tales.gguf"] = served
        self.pulled(self.hub.url + "/tales.gguf", "--connections", "2")
        self.assertEqual(self.content("tales"), TALES)

    def test_attempts_end(self):
        self.hub.paths["/tales.gguf"] = Served(TALES, serve=lambda handler, served: handler.cut_after(served, 0))
        self.refused(1, "before all had come", "2 attempts failed", words=[self.hub.url + "/tales.gguf", "--retries", "1"])

    def test_an_interrupt_keeps_what_came_and_the_next_pull_asks_for_the_rest_alone(self):
        url = self.serve(serve=lambda handler, served: handler.slowly(served, 500_000))
        pull = self.start("pull", "--json", url, "--connections", "2")
        for line in pull.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["done"] > 600_000:
                break
        pull.send_signal(signal.SIGINT)
        out, err = pull.communicate(timeout=30)
        self.assertEqual(pull.returncode, 130, err)
        self.assertRegex(err.decode(), r"[kM]B are kept: `troupe pull http://127.0.0.1:\d+/tales.gguf` goes on from there")
        self.assertEqual(self.models(), [])
        with open(os.path.join(self.store, "partial", f"url-{sha256(url.encode())}.json")) as file:
            state = json.load(file)
        kept = sum(end - begin for begin, end in state["done"])
        self.assertGreater(kept, 600_000)
        self.hub.requests.clear()
        self.serve()
        self.pulled(url)
        asked = [tuple(map(int, each[6:].split("-"))) for each in self.hub.ranges_of("/tales.gguf")]
        self.assertEqual(sum(end + 1 - begin for begin, end in asked), len(TALES) - kept)
        self.assertEqual(self.content("tales"), TALES)

    def test_a_stalled_connection_is_made_again(self):
        stalled = []

        def serve(handler, served):
            if len(stalled) < 1:
                stalled.append(1)
                handler.usual(served, lambda body: (handler.wfile.write(body[:1000]), handler.wfile.flush(), time.sleep(4)))
            else:
                handler.usual(served)
        url = self.serve(serve=serve)
        self.pulled(url, "--timeout", "1s")
        self.assertEqual(self.content("tales"), TALES)

    def test_a_file_that_changes_meanwhile_is_begun_anew(self):
        other = bytes(TALES[:-4]) + b"abcd"
        served = Served(TALES, etag='"old"')

        def serve(handler, _):
            if len(self.hub.ranges_of("/tales.gguf")) >= 4:
                served.data, served.etag = other, '"new"'
            handler.usual(served)
        self.hub.paths["/tales.gguf"] = Served(serve=serve)
        done = self.pulled(self.hub.url + "/tales.gguf", "--connections", "1")
        self.assertIn("beginning anew", done.err)
        self.assertEqual(self.content("tales"), other)

    def test_a_file_that_is_never_the_same_is_given_up(self):
        count = []

        def serve(handler, served):
            count.append(1)
            served.etag = f'"{len(count)}"'
            handler.usual(served)
        self.hub.paths["/tales.gguf"] = Served(TALES, serve=serve)
        self.refused(1, "changes on the server again and again", words=[self.hub.url + "/tales.gguf"])

    # Servers that contradict themselves.

    def test_wrong_ranges_and_lengths_are_named(self):
        def ranged(text):
            return lambda handler, served: handler.answer(206, served.data[:1000], [("Content-Range", text), ("ETag", '"1"')])
        url = self.serve(serve=ranged("bytes 5-1004/2000000"))
        self.refused(1, "bytes 5 to 1004", "were asked for", words=[url])
        self.serve(serve=ranged("bytes 0-999/*"))
        self.refused(1, "Content-Range that is none", words=[url])
        self.serve(serve=ranged("bytes 0-999/18446744073709551615"))
        self.refused(1, "are fetched", words=[url])
        self.serve(serve=ranged("bytes 0-499/2000000"))
        self.refused(1, "was asked for", words=[url])
        # More than promised, in chunks, which have no length of their own.

        def chunked(handler, served):
            handler.send_response(206)
            handler.send_header("Content-Range", "bytes 0-99/100")
            handler.send_header("ETag", '"1"')
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for _ in range(3):
                handler.wfile.write(b"64\r\n" + TALES[:100] + b"\r\n")
            handler.wfile.write(b"0\r\n\r\n")
        self.serve(serve=chunked)
        self.refused(1, "more bytes than the 100 that it promised", words=[url])

        def unmeasured(handler, served):
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.wfile.write(served.data)
            handler.close_connection = True
        self.serve(serve=unmeasured)
        self.refused(1, "without its length", words=[url])

    def test_a_size_above_the_disk_is_refused_with_both_numbers(self):
        url = self.serve(serve=lambda handler, served: handler.answer(
            206, served.data[:512 << 10], [("Content-Range", f"bytes 0-{(512 << 10) - 1}/{1 << 41}"), ("ETag", '"1"')]))
        done = self.refused(1, "needs 2.2 TB more", " free", words=[url])
        self.assertRegex(done.err, r"has [\d.]+ [kMGT]B free")

    def test_a_quota_of_the_store_is_kept(self):
        self.refused(1, "--store-quota 1.0 MB leaves 1.0 MB", words=[self.serve(), "--store-quota", "1000000"])

    def test_a_page_is_no_model(self):
        url = self.serve(b"<!DOCTYPE html><html>" + b" " * 5000)
        self.refused(65, "is no GGUF file: it begins with '<!DO'", words=[url])
        self.assertEqual([name for name in self.files("partial") if name.endswith(".data")], [])

    def test_a_model_that_no_server_takes_is_not_kept(self):
        for data in (TALES[:1_000_000], golden("llama.gguf").replace(b"llama", b"lxama")):
            self.refused(65, "no server would take it", words=[self.serve(data)])
            self.assertEqual((self.files("blobs"), self.files("names"), self.files("files")), ([], [], []))

    # Failures that pass.

    def test_a_server_without_time_is_waited_for(self):
        answers = [("429", [("Retry-After", "1")]),
                   ("503", [("Retry-After", email.utils.formatdate(time.time() + 2, usegmt=True))])]

        def serve(handler, served):
            if answers:
                status, headers = answers.pop(0)
                handler.answer(int(status), b"later", headers)
            else:
                handler.usual(served)
        done = self.pulled(self.serve(serve=serve))
        self.assertEqual((self.content("tales"), answers), (TALES, []))
        self.assertRegex(done.err, r"answered with status 429; again in 1 s")

    def test_a_server_that_wants_hours_is_not_waited_for(self):
        url = self.serve(status=429, headers=[("Retry-After", "7200")])
        self.refused(1, "asks to wait for 7200 s", words=[url])

    def test_what_does_not_pass_is_told_at_once(self):
        self.refused(66, "there is no such model or file (404)", words=[self.hub.url + "/none.gguf"])
        self.assertEqual(len(self.hub.requests), 1)
        self.refused(77, "is private, gated or not there", words=[self.serve(status=401)])
        self.refused(1, "answered with status 500", words=[self.serve(status=500), "--retries", "0"])

    # Redirects, tokens, TLS.

    def test_redirects_are_followed_but_not_for_ever(self):
        self.serve(path="/b/real.gguf")
        self.serve(path="/a/tales.gguf", redirect="../b/real.gguf")
        self.pulled(self.hub.url + "/a/tales.gguf")
        self.assertEqual(self.content("tales"), TALES)
        self.troupe("rm", "tales")
        self.serve(path="/loop.gguf", redirect="/loop.gguf")
        self.refused(1, "redirects more than 10 times", words=[self.hub.url + "/loop.gguf"])
        self.assertEqual(len(self.hub.ranges_of("/loop.gguf")), 11)
        self.serve(path="/ftp.gguf", redirect="ftp://127.0.0.1/x.gguf")
        self.refused(1, "redirects to what is no address", words=[self.hub.url + "/ftp.gguf"])
        self.serve(path="/out.gguf", redirect="http://192.0.2.1/x.gguf")
        self.refused(77, "is without TLS", words=[self.hub.url + "/out.gguf"])

    def test_nothing_for_this_machine_goes_through_a_proxy(self):
        proxy = self.start_hub()
        self.hub.repository("org/tiny-GGUF", {"tiny.gguf": TALES})
        self.pulled("org/tiny-GGUF", no_proxy="", http_proxy=proxy.url, HTTP_PROXY=proxy.url, HF_TOKEN="hf_secret")
        self.assertEqual(proxy.requests, [])

    def write_token(self, mode=0o600):
        path = os.path.join(self.folder, "token")
        with open(path, "w") as file:
            file.write("hf_secret\n")
        os.chmod(path, mode)
        return path

    def test_a_token_goes_to_the_hub_alone(self):
        other = self.start_hub()
        self.hub.repository("org/tiny-GGUF", {"tiny.gguf": Served(TALES, redirect=other.url + "/file")})
        # What comes back from another server is no longer asked for in the hub's name.
        other.paths["/file"] = Served(redirect=self.hub.url + "/cdn")
        self.hub.paths["/cdn"] = Served(TALES, etag='"1"')
        self.pulled("org/tiny-GGUF", "--token-file", self.write_token())
        self.assertEqual(self.content("org/tiny-GGUF:tiny.gguf"), TALES)

        def with_token(hub, path):
            return {headers.get("Authorization") for asked, headers in hub.requests if asked == path}
        self.assertEqual(with_token(self.hub, "/org/tiny-GGUF/resolve/main/tiny.gguf"), {"Bearer hf_secret"})
        self.assertEqual(with_token(self.hub, "/api/models/org/tiny-GGUF/tree/main?recursive=true"), {"Bearer hf_secret"})
        self.assertEqual(with_token(other, "/file"), {None})
        self.assertEqual(with_token(self.hub, "/cdn"), {None})
        self.pulled(self.serve())
        other.paths["/x.gguf"] = Served(TALES)
        self.pulled(other.url + "/x.gguf", HF_TOKEN="hf_secret")
        self.assertEqual(with_token(other, "/x.gguf"), {None})

    def test_tokens_are_found_and_one_that_others_can_read_is_refused(self):
        self.hub.repository("org/tiny-GGUF", {"tiny.gguf": TALES})
        for more in ({"HF_TOKEN": "hf_secret"}, {"HF_TOKEN_PATH": self.write_token()}):
            self.hub.requests.clear()
            self.pulled("org/tiny-GGUF", **more)
            self.assertEqual(self.hub.requests[0][1].get("Authorization"), "Bearer hf_secret")
        credentials = os.path.join(self.folder, "credentials")
        os.mkdir(credentials)
        os.rename(self.write_token(0o440), os.path.join(credentials, "hf-token"))
        self.hub.requests.clear()
        self.pulled("org/tiny-GGUF", CREDENTIALS_DIRECTORY=credentials)
        self.assertEqual(self.hub.requests[0][1].get("Authorization"), "Bearer hf_secret")
        self.troupe("rm", "org/tiny-GGUF:tiny.gguf")
        self.refused(77, "others could read this token", "chmod 600", words=["org/tiny-GGUF", "--token-file", self.write_token(0o644)])
        done = self.troupe("pull", "org/tiny-GGUF", HF_TOKEN="two\nlines")
        self.assertEqual(done.code, 78, done.all)
        self.assertNotIn("lines", done.all)

    def certificate(self):
        key, certificate = os.path.join(self.folder, "key.pem"), os.path.join(self.folder, "certificate.pem")
        done = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                              capture_output=True)
        if done.returncode != 0:
            self.skipTest("openssl makes no certificate here")
        return certificate, key

    def test_an_unknown_certificate_is_refused_with_the_remedy(self):
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        certificate = self.certificate()
        secure = self.start_hub(certificate)
        secure.paths["/tales.gguf"] = Served(TALES, etag='"1"')
        url = secure.url + "/tales.gguf"
        self.refused(77, "its certificate is not trusted", "--ca-file FILE, or SSL_CERT_FILE", words=[url])
        self.pulled(url, "--ca-file", certificate[0])
        self.troupe("rm", "tales")
        self.pulled(url, SSL_CERT_FILE=certificate[0])
        self.assertEqual(self.content("tales"), TALES)
        self.troupe("rm", "tales")
        # Not by way of another name of the same machine.
        self.refused(77, "its certificate is not trusted", words=[url.replace("127.0.0.1", "localhost"), "--ca-file", certificate[0]])
        secure.paths["/tales.gguf"] = Served(redirect=self.serve())
        self.refused(77, "without TLS; that is not followed", words=[url, "--ca-file", certificate[0], "--allow-http"])

    def test_http_is_for_this_machine(self):
        self.refused(77, "is without TLS", "--allow-http", words=["http://192.0.2.1/tales.gguf"])
        self.refused(77, "is without TLS", words=["http://127.0.0.1.example.org/tales.gguf"])

    def test_what_names_no_model_is_refused_before_anything_is_asked(self):
        for text in ("", "tiny", "a/b/c", "../b", "org/..", "org/name:../x", "org/name@../x", "-x/y", "org/na me", "org/name:",
                     "https://h/x.bin", "https://h/a%2f..%2fx.gguf", "https://h/.gguf", "https://u:p@h/x.gguf", "file:///x.gguf",
                     "ollama://", "ollama://../x", "ollama://a:../b", "org/\x1bname", "o/" + "n" * 400, "https://h/x\x7f.gguf"):
            done = self.troupe("pull", "--", text)
            self.assertEqual(done.code, 2, (text, done.all))
            self.assertNotIn("\x1b", done.err)
        self.assertEqual(self.hub.requests, [])

    # A hub.

    def test_the_largest_that_fits_is_chosen_and_it_says_why(self):
        model = golden("llama.gguf")
        files = {f"tiny-{quant}.gguf": model + bytes(size) for quant, size in
                 (("Q2_K", 0), ("Q4_K_M", 40_000_000), ("Q8_0", 80_000_000), ("BF16", 160_000_000))}
        self.hub.repository("org/tiny-GGUF", {**files, "mmproj-F16.gguf": model, "README.md": b"text", "imatrix.gguf": model})
        done = self.pulled("org/tiny-GGUF", "--memory", "61000000", "-c", "40")
        self.assertIn("Q4_K_M, 40.1 MB: Q8_0's 80.1 MB does not fit the 61.0 MB", done.err)
        self.assertIn("for K and V of 40 tokens", done.err)
        self.assertEqual(self.names(), ["org/tiny-GGUF:Q4_K_M"])
        self.assertEqual([name for name in self.files("partial") if name.endswith((".data", ".json"))], [])
        self.assertEqual(self.models()[0]["revision"], "c" * 40)
        self.troupe("rm", "org/tiny-GGUF:Q4_K_M")
        self.refused(1, "no file fits the 50.0 kB that a server would have here", "the smallest is Q2_K",
                     words=["org/tiny-GGUF", "--memory", "50000", "-c", "40"])
        # With more tokens less is left for weights.
        self.pulled("org/tiny-GGUF", "--memory", "40150000", "-c", "32")
        self.assertEqual(self.names(), ["org/tiny-GGUF:Q4_K_M"])
        self.troupe("rm", "org/tiny-GGUF:Q4_K_M")
        self.pulled("org/tiny-GGUF", "--memory", "40150000", "-c", "512")
        self.assertEqual(self.names(), ["org/tiny-GGUF:Q2_K"])
        self.troupe("rm", "org/tiny-GGUF:Q2_K")
        self.pulled("org/tiny-GGUF", "--memory", "8GiB")
        self.assertEqual(self.names(), ["org/tiny-GGUF:BF16"])

    def test_a_quantization_is_named_in_any_case_and_else_listed(self):
        self.hub.repository("org/tiny-GGUF", {"Q4/tiny.q4_k_m.gguf": TALES, "tiny-UD-Q2_K_XL.gguf": golden("llama.gguf"),
                                              "other-Q8_0.gguf": golden("qwen2.gguf"), "tiny-Q8_0.gguf": golden("qwen3.gguf"),
                                              "../../evil-Q5_0.gguf": TALES, "a/../../evil-Q5_1.gguf": TALES}, pages=2)
        self.pulled("org/tiny-GGUF:Q4_k_M")
        self.pulled("org/tiny-GGUF:ud-q2_k_xl")
        self.pulled("org/tiny-GGUF:other-Q8_0.gguf")
        self.assertEqual(self.names(), ["org/tiny-GGUF:Q4_K_M", "org/tiny-GGUF:UD-Q2_K_XL", "org/tiny-GGUF:other-Q8_0.gguf"])
        done = self.troupe("pull", "org/tiny-GGUF:Q8_0")
        self.assertEqual(done.code, 2)
        self.assertIn("2 files are 'Q8_0'; name a file behind the colon: tiny-Q8_0.gguf", done.err)
        done = self.troupe("pull", "org/tiny-GGUF:Q3_K")
        self.assertEqual(done.code, 2)
        self.assertIn("there is no 'Q3_K'; there are ", done.err)
        self.assertIn("Q4_K_M (1.9 MB)", done.err)
        self.assertNotIn("evil", done.all)
        self.assertNotIn("Q5_0", done.all)
        done = self.troupe("pull", "org/tiny-GGUF")
        self.assertEqual(done.code, 2)
        self.assertIn("it has several models", done.err)
        # A part of a name does where it means one, and the list where it means several.
        self.assertEqual(self.troupe("inspect", "org/tiny-GGUF").code, 2)
        self.troupe("rm", "org/tiny-GGUF:UD-Q2_K_XL", "org/tiny-GGUF:other-Q8_0.gguf")
        self.assertEqual(self.troupe("inspect", "Org/tiny-gguf").code, 0)

    def test_repositories_without_gguf_are_told_what_to_look_for(self):
        self.hub.repository("org/tiny", {"model.safetensors": b"x", "config.json": b"{}"})
        self.refused(65, "has no GGUF model, but safetensors", "ends with -GGUF", words=["org/tiny"])
        self.refused(66, "there is no such model or file (404)", words=["org/none"])

    def test_addresses_of_the_hubs_pages_are_its_models(self):
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": TALES, "tiny-Q4_0.gguf": golden("llama.gguf")})
        self.pulled(self.hub.url + "/org/tiny-GGUF/blob/main/tiny-Q8_0.gguf")
        self.assertEqual(self.names(), ["org/tiny-GGUF:tiny-Q8_0.gguf"])
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": TALES}, revision="v2")
        self.pulled("org/tiny-GGUF@v2")
        self.assertIn("org/tiny-GGUF:Q8_0@v2", self.names())
        self.assertEqual(len(self.files("blobs")), 1)

    def test_lists_that_are_none_are_refused(self):
        address = "/api/models/org/tiny/tree/main?recursive=true"
        for text, why in ((b"{}", "is no JSON list"), (b"<html>", "is no JSON list"),
                          (json.dumps([{"type": "file", "path": "a.gguf", "size": 1 << 60}]).encode(), "are fetched")):
            self.hub.paths[address] = Served(text)
            self.refused(1, why, words=["org/tiny"])
        self.hub.paths[address] = Served(b"[]", headers=[("Link", '<https://example.org/x>; rel="next"')])
        self.refused(1, "another server", words=["org/tiny"])
        self.hub.paths[address] = Served(b"[]", headers=[("Link", f'<{self.hub.url}{address}>; rel="next"')])
        self.refused(1, "more than 64 pages", words=["org/tiny"])

    def test_wrong_bytes_are_refused_by_their_hash_and_not_kept(self):
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": TALES})
        wrong = bytearray(TALES)
        wrong[1_500_000] ^= 1
        self.hub.paths["/org/tiny-GGUF/resolve/main/tiny-Q8_0.gguf"].data = bytes(wrong)
        self.refused(1, f"its SHA-256 is {sha256(bytes(wrong))}, and {sha256(TALES)} was promised", words=["org/tiny-GGUF"])
        self.assertEqual((self.files("blobs"), [name for name in self.files("partial") if ".lock" not in name]), ([], ["in-use"]))
        self.hub.paths["/org/tiny-GGUF/resolve/main/tiny-Q8_0.gguf"].data = TALES[:-1]
        self.refused(1, "has 1861279 bytes, and 1861280 were promised", words=["org/tiny-GGUF"])

    def test_parts_of_a_split_model_come_together(self):
        parts = split_gguf(TALES, 3)
        names = [f"tales-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
        self.hub.repository("org/tales-GGUF", {f"Q8_0/{name}": part for name, part in zip(names, parts)})
        self.pulled("org/tales-GGUF:Q8_0")
        self.assertEqual(self.content("org/tales-GGUF:Q8_0"), b"".join(parts))
        self.assertEqual(self.troupe("inspect", "org/tales-GGUF").code, 0)
        for name, part in zip(names, parts):
            self.serve(part, "/split/" + name)
        self.pulled(self.hub.url + "/split/" + names[1])
        self.assertIn("tales-Q8_0", self.names())
        self.assertEqual(len(self.files("blobs")), 3)
        # A part that is missing is no model.
        self.hub.repository("org/half-GGUF", {name: part for name, part in zip(names[:2], parts)})
        done = self.troupe("pull", "org/half-GGUF")
        self.assertEqual(done.code, 65, done.all)

    def test_a_registrys_model_comes_by_its_manifest(self):
        self.hub.image("library/tales", "5m", TALES)
        self.pulled("ollama://tales:5m")
        self.assertEqual(self.names(), ["tales:5m"])
        self.assertEqual(self.troupe("inspect", "-m", "tales:5m").code, 0)
        self.assertEqual(self.troupe("inspect", "-m", "ollama://tales:5m").code, 0)
        self.hub.image("someone/tales", "latest", golden("llama.gguf"))
        self.pulled("ollama://someone/tales")
        self.assertEqual(self.names(), ["ollama://someone/tales:latest", "tales:5m"])
        for manifest, why in ((b"[]", "no list of layers"), (b'{"layers": []}', "no model in GGUF"),
                              (b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../x", '
                               b'"size": 5}]}', "names no SHA-256")):
            self.hub.paths["/v2/library/bad/manifests/latest"] = Served(manifest)
            done = self.troupe("pull", "ollama://bad")
            self.assertIn(why, done.err)
            self.assertNotEqual(done.code, 0)

    # Progress.

    def test_events_are_lines_of_json_and_quiet_is_quiet(self):
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": TALES})
        events = [json.loads(line) for line in self.pulled("org/tiny-GGUF", "--json").out.splitlines()]
        self.assertEqual([events[0]["event"], events[-1]["event"]], ["chosen", "pulled"])
        self.assertEqual((events[0]["bytes"], events[-1]["name"]), (len(TALES), "org/tiny-GGUF:Q8_0"))
        self.assertEqual(events[-2], {**events[-2], "event": "progress", "done": len(TALES), "total": len(TALES)})
        self.troupe("rm", "org/tiny-GGUF:Q8_0")
        self.assertEqual(self.pulled("org/tiny-GGUF", "--quiet").all, "")

    def test_a_missing_name_is_told_with_the_command_that_fetches_it(self):
        for words in (["inspect", "-m", "org/tiny-GGUF"], ["serve", "-m", "org/tiny-GGUF:Q8_0"], ["bench", "-hf", "org/tiny-GGUF"],
                      ["tokenize", "-m", "org/tiny-GGUF", "x"], ["serve", "--draft", "org/tiny-GGUF"],
                      ["probe", "-m", "org/tiny-GGUF"]):
            done = self.troupe(*words)
            self.assertEqual(done.code, 66, (words, done.all))
            self.assertIn("`troupe pull org/tiny-GGUF", done.err)
        self.assertEqual(self.hub.requests, [])

    def test_a_person_is_asked_before_a_missing_model_is_fetched(self):
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": TALES})
        for answer, code in ((b"n\n", 66), (b"\n", 0)):
            process, terminal = pty.fork()
            if process == 0:
                os.execve(TROUPE, [TROUPE, "inspect", "-m", "org/tiny-GGUF"], self.environment())
            said, answered = b"", False
            while True:
                try:
                    piece = os.read(terminal, 4096)
                except OSError:  # the other end is closed
                    break
                said += piece
                if not piece:
                    break
                if not answered and b"Pull org/tiny-GGUF:Q8_0 (1.9 MB)? [Y/n]" in said:
                    os.write(terminal, answer)
                    answered = True
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), code, said)
            os.close(terminal)
        self.assertEqual(self.names(), ["org/tiny-GGUF:Q8_0"])

    # The store.

    def test_names_go_and_files_with_the_last_of_them(self):
        url = self.serve()
        self.pulled(url)
        self.pulled(url, "--name", "twin")
        self.assertEqual(len(self.files("blobs")), 1)
        self.assertEqual(self.troupe("rm", "TALES").code, 66)  # a whole name, or nothing
        done = self.troupe("rm", "tales")
        self.assertEqual((done.code, done.out), (0, "removed tales\n"))
        self.assertEqual(self.content("twin"), TALES)
        self.assertIn("free when no server has it open", self.troupe("rm", "twin").out)
        self.assertEqual((self.files("blobs"), self.files("files"), self.files("names")), ([], [], []))
        self.assertEqual(self.troupe("rm", "twin").code, 66)

    def test_prune_removes_what_nothing_needs_and_nothing_while_a_pull_runs(self):
        self.pulled(self.serve())
        with open(os.path.join(self.store, "blobs", "sha256-" + "0" * 64), "w") as file:
            file.write("x" * 10_000)
        done = self.troupe("prune", "--dry-run")
        self.assertIn("blobs/sha256-000", done.out)
        self.assertIn("would remove 2 files", done.out)
        # What cannot be removed does not keep the rest.
        os.makedirs(os.path.join(self.store, "partial", "stray", "folder"))
        url = self.serve(path="/slow.gguf", serve=lambda handler, served: handler.slowly(served, 200_000))
        pull = self.start("pull", "--json", url)
        for line in pull.stdout:
            if json.loads(line)["event"] == "progress":
                break
        self.assertEqual(self.troupe("prune").code, 75)
        self.assertEqual(self.troupe("rm", "tales").code, 0)
        pull.kill()
        pull.communicate()
        done = self.troupe("prune")
        self.assertEqual(done.code, 1, done.all)
        self.assertRegex(done.err, "stray: (cannot be removed|others may write to it)")
        self.assertEqual((self.files("partial"), self.files("blobs"), self.files("files")), (["in-use", "stray"], [], []))
        shutil.rmtree(os.path.join(self.store, "partial", "stray"))
        self.assertEqual(self.troupe("prune").code, 0)

    def test_nothing_outside_is_removed_through_an_exchanged_folder(self):
        self.pulled(self.serve())
        outside = os.path.join(self.folder, "outside")
        os.mkdir(outside)
        with open(os.path.join(outside, "file"), "w") as file:
            file.write("x")
        folder = os.path.join(self.store, "files", self.files("files")[0])
        os.rename(folder, folder + "x")
        os.symlink(outside, folder)
        self.assertEqual(self.troupe("inspect", "-m", "tales").code, 77)
        self.assertEqual(self.troupe("rm", "tales").code, 0)
        self.assertEqual(self.troupe("prune").code, 0)
        self.assertEqual(os.listdir(outside), ["file"])
        os.rename(os.path.join(self.store, "blobs"), os.path.join(self.folder, "blobs"))
        os.symlink(outside, os.path.join(self.store, "blobs"))
        for words in (["prune"], ["pull", self.hub.url + "/tales.gguf"]):
            self.assertEqual(self.troupe(*words).code, 77, words)
        self.assertEqual(os.listdir(outside), ["file"])

    def test_what_others_could_change_is_not_used(self):
        self.pulled(self.serve())
        blob = os.path.join(self.store, "blobs", "sha256-" + sha256(TALES))
        os.chmod(blob, 0o666)
        done = self.troupe("inspect", "-m", "tales")
        self.assertEqual(done.code, 77, done.all)
        self.assertIn("others may write to it", done.err)
        os.chmod(blob, 0o644)
        folder = os.path.join(self.store, "files", self.files("files")[0])
        link = os.path.join(folder, "tales.gguf")
        os.unlink(link)
        os.symlink(os.path.join(SOURCE, "models/tales-draft-q8_0.gguf"), link)
        self.assertIn("leads not to", self.troupe("inspect", "-m", "tales").err)
        os.unlink(link)
        os.symlink("../../blobs/sha256-" + sha256(TALES), link)
        self.assertEqual(self.troupe("inspect", "-m", "tales").code, 0)
        os.rename(blob, blob + "x")
        os.symlink(blob + "x", blob)
        self.assertIn("is no plain file", self.troupe("inspect", "-m", "tales").err)
        os.unlink(blob)
        os.rename(blob + "x", blob)
        if os.geteuid() == 0:
            os.chown(os.path.join(self.store, "names", "tales.json"), 12345, -1)
            self.assertEqual(self.troupe("inspect", "-m", "tales").code, 66)
            self.assertIn("belongs to", self.troupe("list").err)
            os.chown(os.path.join(self.store, "names", "tales.json"), 0, -1)
        os.chmod(self.store, 0o777)
        self.assertEqual(self.troupe("pull", self.hub.url + "/tales.gguf").code, 77)

    def test_damaged_records_are_told_and_nothing_is_removed_for_them(self):
        self.pulled(self.serve())
        path = os.path.join(self.store, "names", "tales.json")
        with open(path) as file:
            record = json.load(file)
        record["files"][0]["name"] = "../../x.gguf"
        with open(path, "w") as file:
            json.dump(record, file)
        done = self.troupe("list")
        self.assertIn("its file's name leads elsewhere", done.err)
        self.assertEqual(self.troupe("prune").code, 1)
        self.assertEqual(len(self.files("blobs")), 1)
        self.assertIn("whose record could not be read", self.troupe("rm", "tales").out)
        self.assertEqual(self.troupe("prune").code, 0)
        self.assertEqual(self.files("blobs"), [])

    def test_a_model_that_cannot_be_listed_keeps_its_files(self):
        self.pulled(self.serve(golden("llama.gguf"), "/other.gguf"))
        self.troupe("rm", "other")
        os.mkdir(os.path.join(self.store, "names", "tales.json"))  # a folder stands where its record goes
        done = self.troupe("pull", self.serve())
        self.assertEqual(done.code, 1, done.all)
        self.assertIn("its files are kept", done.err)
        self.assertEqual(self.files("blobs"), ["sha256-" + sha256(TALES)])

    def test_a_hub_and_a_registry_may_have_the_same_name(self):
        self.hub.repository("foo/bar", {"bar-Q8_0.gguf": TALES})
        self.hub.image("foo/bar", "Q8_0", golden("llama.gguf"))
        self.pulled("foo/bar")
        self.pulled("ollama://foo/bar:Q8_0")
        self.assertEqual(self.names(), ["foo/bar:Q8_0", "ollama://foo/bar:Q8_0"])
        self.assertEqual(self.troupe("rm", "ollama://foo/bar:Q8_0").code, 0)
        self.assertEqual(self.names(), ["foo/bar:Q8_0"])
        self.assertEqual(self.troupe("inspect", "-m", "ollama://foo/bar:Q8_0").code, 66)

    def test_files_of_two_folders_are_two_models(self):
        self.hub.repository("two/dirs", {"A/m-Q8_0.gguf": TALES, "B/m-Q8_0.gguf": golden("llama.gguf")})
        self.pulled("two/dirs:A/m-Q8_0.gguf")
        self.pulled("two/dirs:B/m-Q8_0.gguf")
        self.assertEqual(self.names(), ["two/dirs:A/m-Q8_0.gguf", "two/dirs:B/m-Q8_0.gguf"])
        # Another hub's model of the same name is another model.
        other = self.start_hub()
        other.repository("two/dirs", {"A/m-Q8_0.gguf": golden("qwen2.gguf")})
        done = self.troupe("pull", "two/dirs:A/m-Q8_0.gguf", HF_ENDPOINT=other.url)
        self.assertEqual(done.code, 2)
        self.assertIn("give this one another name", done.err)

    def test_names_of_files_never_become_commands(self):
        self.hub.repository("e/vil", {"tiny;$(touch${IFS}PWNED)`id`|sh.gguf": TALES})
        done = self.refused(2, "a name has letters, digits", "--name", words=["e/vil"])
        self.assertNotIn("$(touch", done.all)
        self.pulled("e/vil", "--name", "tame")
        self.assertEqual(self.names(), ["tame"])

    def test_a_name_is_not_a_file_of_this_folder_after_hf_and_a_folder_hides_no_model(self):
        self.hub.repository("foo/bar", {"bar-Q8_0.gguf": TALES})
        self.pulled("foo/bar")
        os.makedirs(os.path.join(self.folder, "foo/bar"))
        with open(os.path.join(self.folder, "foo/bar:Q8_0"), "w") as file:
            file.write("no model")
        for words, code in ((["inspect", "-hf", "foo/bar:Q8_0"], 0), (["inspect", "-m", "foo/bar"], 0), (["inspect", "-m", "foo/bar:Q8_0"], 65)):
            done = subprocess.run([TROUPE, *words], env=self.environment(), cwd=self.folder, capture_output=True, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, code, (words, done.stderr))

    def test_the_machines_store_is_found_by_all_and_written_by_its_owner(self):
        if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
            self.skipTest("only root has a /var/lib of its own")
        script = os.path.join(self.folder, "script")
        with open(script, "w") as file:
            file.write(f"""set -e
                mount -t tmpfs -o mode=755 none /var/lib
                mkdir -m 755 /var/lib/troupe
                umask 077
                {TROUPE} pull -q --system {self.serve()}
                umask 022
                rm -rf {self.folder}/data
                {TROUPE} list
                cd /
                nobody() {{ setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent XDG_DATA_HOME= "$@"; }}
                nobody {TROUPE} inspect -m tales | head -n 1
                nobody {TROUPE} rm --system tales && exit 1 || echo refused $?
                nobody {TROUPE} prune --system && exit 1 || echo refused $?
                nobody {TROUPE} pull --system {self.hub.url}/tales.gguf && exit 1 || echo refused $?
                chmod o+w /var/lib/troupe/models/blobs
                nobody {TROUPE} inspect -m tales && exit 1 || echo refused $?
                chmod o-w /var/lib/troupe/models/blobs
                mv /var/lib/troupe/models /var/lib/troupe/elsewhere
                ln -s elsewhere /var/lib/troupe/models
                {TROUPE} inspect -m tales && exit 1 || echo refused $?
                {TROUPE} prune --system && exit 1 || echo refused $?
                """)
        done = subprocess.run(["unshare", "-m", "sh", script], env=self.environment(), capture_output=True, stdin=subprocess.DEVNULL)
        if b"mount" in done.stderr or b"unshare" in done.stderr:
            self.skipTest("no file system can be mounted here")
        out = done.stdout.decode()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tales    1.9 MB", out)
        self.assertIn("/var/lib/troupe/models/files/", out)
        # What may not be used is told, and is no model.
        self.assertEqual(re.findall(r"refused (\d+)", out), ["77", "77", "77", "66", "66", "77"], done.stderr)
        self.assertIn("others may write to it", done.stderr.decode())

    def test_a_hubs_model_that_did_not_change_is_up_to_date(self):
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": TALES})
        self.pulled("org/tiny-GGUF")
        self.assertIn("org/tiny-GGUF:Q8_0 is up to date", self.pulled("org/tiny-GGUF").out)
        self.assertEqual(len(self.files("blobs")), 1)

    def test_versions_that_nothing_marks_are_never_mixed(self):
        for etag in (None, 'W/"1"'):
            url = self.serve(etag=etag, serve=lambda handler, served: handler.slowly(served, 1_000_000))
            pull = self.start("pull", "--json", url)
            for line in pull.stdout:
                event = json.loads(line)
                if event["event"] == "progress" and event["done"] > 700_000:
                    break
            pull.send_signal(signal.SIGINT)
            pull.communicate()
            self.assertEqual(pull.returncode, 130)
            self.assertEqual([name for name in self.files("partial") if name.endswith(".json")], [])
            other = bytearray(TALES)
            other[-4:] = b"abcd"
            self.hub.requests.clear()
            self.serve(bytes(other), etag=etag)
            self.pulled(url)
            self.assertEqual(self.content("tales"), bytes(other))
            self.assertIn(None, self.hub.ranges_of("/tales.gguf"))
            self.troupe("rm", "tales")

    def test_a_lock_that_another_program_keeps_is_named(self):
        self.pulled(self.serve())
        with open(os.path.join(self.store, "partial", "in-use")) as file:
            self.assertEqual(stat.S_IMODE(os.fstat(file.fileno()).st_mode), 0o600)
            fcntl.flock(file, fcntl.LOCK_SH)
            done = self.troupe("prune")
            self.assertEqual(done.code, 75, done.all)
            fcntl.flock(file, fcntl.LOCK_EX)
            done = self.troupe("pull", self.hub.url + "/tales.gguf")
            self.assertEqual(done.code, 69, done.all)
            self.assertIn("partial/in-use: another program holds this lock", done.err)

    def test_two_pulls_of_one_address_fetch_it_once(self):
        url = self.serve(serve=lambda handler, served: handler.slowly(served, 2_000_000))
        pulls = [self.start("pull", url) for _ in range(3)]
        for pull in pulls:
            out, err = pull.communicate(timeout=60)
            self.assertEqual(pull.returncode, 0, err)
        self.assertEqual(self.content("tales"), TALES)
        sizes = [int(end) + 1 - int(begin) for begin, end in (each[6:].split("-") for each in self.hub.ranges_of("/tales.gguf"))]
        self.assertLess(sum(sizes), len(TALES) + 3 * (512 << 10))  # who waited asks once whether it changed

    def test_two_pulls_of_one_model_fetch_it_once(self):
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": Served(
            TALES, serve=lambda handler, served: handler.slowly(served, 2_000_000))})
        pulls = [self.start("pull", "org/tiny-GGUF") for _ in range(3)]
        for pull in pulls:
            out, err = pull.communicate(timeout=60)
            self.assertEqual(pull.returncode, 0, err)
        self.assertEqual(self.content("org/tiny-GGUF:Q8_0"), TALES)
        asked = [tuple(map(int, each[6:].split("-")))
                 for each in self.hub.ranges_of("/org/tiny-GGUF/resolve/main/tiny-Q8_0.gguf")]
        self.assertEqual(sum(end + 1 - begin for begin, end in asked), len(TALES))

    def test_a_full_disk_keeps_what_came(self):
        if os.geteuid() != 0:
            self.skipTest("only root mounts a small disk")
        small = os.path.join(self.folder, "small")
        os.mkdir(small)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", small], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", small])
        url = self.serve(TALES + bytes(30_000_000))
        done = self.troupe("pull", url, "--store", small + "/store")
        self.assertEqual(done.code, 1)
        self.assertRegex(done.err, r"needs [\d.]+ MB more, and .* has [\d.]+ MB free")
        # Another program takes what was free when it began.

        def serve(handler, served):
            if handler.wanted()[0] > 0:
                with open(small + "/other", "wb") as file:
                    try:
                        file.write(bytes(30_000_000))
                    except OSError:
                        pass
            handler.usual(served)
        url = self.serve(TALES + bytes(4_000_000), serve=serve)
        done = self.troupe("pull", url, "--store", small + "/store", "--connections", "1")
        self.assertEqual(done.code, 1)
        self.assertIn("what has come is kept: make room", done.err)
        os.unlink(small + "/other")
        self.serve(TALES + bytes(4_000_000))
        self.assertEqual(self.troupe("pull", url, "--store", small + "/store").code, 0)

    def test_whenever_it_is_killed_there_is_a_whole_model_or_none(self):
        data = golden("llama.gguf") + bytes(1_200_000)
        served = Served(data, etag='"1"', serve=lambda handler, served: handler.slowly(served, 20_000_000))
        self.hub.repository("org/tiny-GGUF", {"tiny-Q8_0.gguf": served})
        self.hub.paths["/tiny.gguf"] = served
        # With the hash known before, and only afterwards.
        self.kill_pulls("org/tiny-GGUF", "org/tiny-GGUF:Q8_0", data, 20261129, KILLS // 2)
        self.kill_pulls(self.hub.url + "/tiny.gguf", "tiny", data, 20261130, KILLS - KILLS // 2)

    def kill_pulls(self, source, name, data, seed, kills):
        chance = random.Random(seed)
        whole, killed = 0, 0
        record = os.path.join(self.store, "names", name.replace("/", "%2F").replace(":", "%3A") + ".json")
        longest = 0.05
        for number in range(kills):
            begun = time.monotonic()
            pull = self.start("pull", "-q", source)
            try:
                pull.wait(chance.uniform(0, longest))
                longest = max(longest / 1.5, min(2.0, 1.2 * (time.monotonic() - begun)))
            except subprocess.TimeoutExpired:
                pull.kill()
                killed += 1
                longest = min(2.0, longest * 1.2)
            pull.communicate()
            if os.path.exists(record):  # then all of it is there
                whole += 1
                with open(record) as opened:
                    file = json.load(opened)["files"][0]
                with open(os.path.join(self.store, "blobs", "sha256-" + file["sha256"]), "rb") as blob:
                    self.assertEqual(sha256(blob.read()), sha256(data), f"seed {seed}, kill {number}")
                if whole % 4 == 0:
                    self.assertEqual(self.content(name), data)
                self.assertEqual(self.troupe("rm", name).code, 0)
            else:
                for blob in self.files("blobs"):
                    with open(os.path.join(self.store, "blobs", blob), "rb") as file:
                        self.assertEqual(blob, "sha256-" + sha256(file.read()), f"seed {seed}, kill {number}")
        self.pulled(source)
        self.assertEqual(self.content(name), data)
        self.assertGreater(killed, 0)
        self.troupe("rm", name)
        self.assertEqual(self.troupe("prune").code, 0)
        self.assertEqual([self.files(folder) for folder in ("blobs", "files", "names", "partial")], [[], [], [], ["in-use"]])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
