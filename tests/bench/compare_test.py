"""bench/compare.py against programs that only pretend: they note how they were called and print what they are told."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

COMPARE = sys.argv.pop(1)

# Prints one speed for each test that its arguments ask for: SPEED times what the test is, by SCALE[work].
FAKE = """#!%(python)s
import json, os, sys
folder = %(folder)r
with open(os.path.join(folder, %(name)r + ".calls"), "a") as calls:
    calls.write(json.dumps([sys.argv[1:], os.environ.get("FLAVOUR", ""), os.environ.get("TROUPE_KERNELS", "")]) + "\\n")
with open(os.path.join(folder, %(name)r + ".calls")) as calls:
    number = len(calls.readlines())
with open(os.path.join(folder, %(name)r + ".plan")) as plan:
    exec(plan.read())
"""

VALUES = """
def value(flag):
    return sys.argv[sys.argv.index(flag) + 1]
def ints(flag):
    return [int(part) for part in value(flag).split(",")]
"""
TROUPE = VALUES + """
rows = []
if ints("-p")[0]:
    rows.append({"n_prompt": ints("-p")[0], "n_gen": 0, "batch_size": 1, "median_ts": 100.0 * SPEED})
if ints("-n")[0]:
    for batch in ints("-b"):
        rows.append({"n_prompt": 0, "n_gen": ints("-n")[0], "batch_size": batch, "median_ts": 10.0 * batch * SPEED})
rows[-1].update(SHARE)  # as of a probed machine
print(json.dumps({"results": rows, "probe": {"machine": MACHINE}} if "MACHINE" in globals() else {"results": rows}))
"""
BENCH = VALUES + """
rows = []
if ints("-p")[0]:
    rows.append({"n_prompt": ints("-p")[0], "n_gen": 0, "avg_ts": 50.0 * SPEED})
if ints("-n")[0]:
    rows.append({"n_prompt": 0, "n_gen": ints("-n")[0], "avg_ts": 5.0 * SPEED})
print(json.dumps(rows))
"""
BATCHED = VALUES + """
print("warming up")
for batch in ints("-npl"):
    if batch not in LOST:
        print(json.dumps({"pl": batch, "tg": ints("-ntg")[0], "speed_tg": 4.0 * batch * SPEED}))
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.folder_ = tempfile.TemporaryDirectory()
        self.folder = self.folder_.name
        self.addCleanup(self.folder_.cleanup)
        self.fake("troupe", "SPEED, SHARE = 1, {}" + TROUPE)
        self.fake("llama-bench", "SPEED = 1" + BENCH)
        self.fake("llama-batched-bench", "SPEED, LOST = 1, []" + BATCHED)
        with open(self.path("tiny.gguf"), "w", encoding="ascii"):
            pass

    def path(self, name):
        return os.path.join(self.folder, name)

    def fake(self, name, plan):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(FAKE % {"python": sys.executable, "folder": self.folder, "name": name})
        os.chmod(self.path(name), 0o755)
        with open(self.path(name + ".plan"), "w", encoding="ascii") as file:
            file.write(plan)

    def calls(self, name):
        with open(self.path(name + ".calls"), encoding="ascii") as file:
            return [json.loads(line) for line in file]

    def compare(self, *arguments, peers=("bench", "batched"), code=0):
        command = [sys.executable, "-B", COMPARE, "--troupe", self.path("troupe"), "-t", "2", "-m",
                   self.path("tiny.gguf")]
        if "bench" in peers:
            command += ["--peer", self.path("llama-bench")]
        if "batched" in peers:
            command += ["--peer-batched", self.path("llama-batched-bench")]
        environment = {name: value for name, value in os.environ.items() if name != "TROUPE_KERNELS"}
        done = subprocess.run(command + list(arguments), capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def rows(self, *arguments, **more):
        report = json.loads(self.compare(*arguments, "-o", "json", **more).stdout)
        return {(row["peer"], row["work"], row["batch"], row["depth"]): row for row in report["rows"]}, report

    def test_both_are_asked_for_the_same_and_medians_are_divided(self):
        # The third round of five is an outlier.
        self.fake("troupe", "SPEED, SHARE = (9 if number == 3 else 1 + number / 10), {}" + TROUPE)
        rows, _ = self.rows("-p", "256", "-n", "16", "-b", "1,8,32", "-r", "5", "--kv-type", "f32", "--kernels", "avx2")
        self.assertEqual(list(rows), [("peer", "prefill", 1, 0)] + [("peer", "decode", b, 0) for b in (1, 8, 32)])
        self.assertAlmostEqual(rows["peer", "prefill", 1, 0]["ratio"], 140 / 50)
        self.assertAlmostEqual(rows["peer", "decode", 1, 0]["ratio"], 14 / 5)
        self.assertAlmostEqual(rows["peer", "decode", 32, 0]["ratio"], 14 * 32 / (4 * 32))
        self.assertAlmostEqual(rows["peer", "decode", 32, 0]["troupe_ts"]["per_batch_1"], 32)
        self.assertAlmostEqual(rows["peer", "decode", 32, 0]["peer_ts"]["per_batch_1"], 4 * 32 / 5)
        self.assertAlmostEqual(rows["peer", "prefill", 1, 0]["troupe_ts"]["spread"], 395)
        model = self.path("tiny.gguf")
        self.assertEqual(self.calls("troupe"), 5 * [[
            f"bench -m {model} -p 256 -n 16 -b 1,8,32 -d 0 -r 1 -t 2 --kv-type f32 -o json".split(), "", "avx2"]])
        self.assertEqual(self.calls("llama-bench"), 5 * [[
            f"-m {model} -p 256 -n 16 -d 0 -r 1 -t 2 -ctk f32 -ctv f32 -o json".split(), "", ""]])
        self.assertEqual(self.calls("llama-batched-bench"), 5 * [[
            f"-m {model} -c 8192 -npp 1 -ntg 16 -npl 8,32 -t 2 -ctk f32 -ctv f32 --output-format jsonl".split(), "",
            ""]])

    def test_depth_and_peers_of_other_make(self):
        rows, report = self.rows("-p", "0", "-n", "16", "-b", "1,2", "-d", "0,8192", "-r", "1", "--kv-type", "int8",
                                 peers=["batched"])
        self.assertEqual(set(rows), {("peer", "decode", b, d) for b in (1, 2) for d in (0, 8192)})
        calls = self.calls("llama-batched-bench")
        self.assertIn("-c 512 -npp 1 -ntg 16 -npl 1,2 -t 2 -ctk q8_0", " ".join(calls[0][0]))
        self.assertIn("-c 16896 -npp 8192 -ntg 16 -npl 1,2", " ".join(calls[1][0]))
        self.assertIn("-d 8192", " ".join(self.calls("troupe")[1][0]))
        self.assertEqual([(run["depth"], sorted(run["programs"])) for run in report["runs"]],
                         [(0, ["peer", "troupe"]), (8192, ["peer", "troupe"])])

    def test_each_peer_has_its_environment(self):
        bench, batched = self.path("llama-bench"), self.path("llama-batched-bench")
        rows, _ = self.rows("--peer", "a=" + bench, "--peer", "b=" + bench, "--peer-batched", "b=" + batched,
                            "--peer-env", "FLAVOUR=plain", "--peer-env", "b:FLAVOUR=amx=on", "-b", "1,4", "-r", "1",
                            peers=[])
        self.assertEqual([call[1] for call in self.calls("llama-bench")], ["plain", "amx=on"])
        self.assertEqual([call[1] for call in self.calls("llama-batched-bench")], ["amx=on"])
        self.assertEqual(self.calls("troupe")[0][1], "")
        self.assertIn(("b", "decode", 4, 0), rows)
        self.assertNotIn(("a", "decode", 4, 0), rows)  # it has no program for that
        done = self.compare("--peer-env", "c:X=1", code=2)
        self.assertIn("no peer is named c", done.stderr)

    def test_memory_and_stolen_time_are_shown(self):
        # Of 80 MiB.
        self.fake("troupe", "SPEED, SHARE = 1, {}\nbig = bytearray(b'x') * (80 << 20)" + TROUPE)
        _, report = self.rows("-r", "1", "-b", "1")
        programs = report["runs"][0]["programs"]
        self.assertGreater(programs["troupe"]["peak_rss_bytes"], 64 << 20)
        self.assertLess(programs["peer"]["peak_rss_bytes"], 64 << 20)
        for figure in ("steal_percent_median", "steal_percent_max", "others_percent_median", "others_percent_max"):
            self.assertTrue(0 <= programs["peer"][figure] <= 100, figure)
        text = self.compare("-r", "1").stdout
        self.assertIn("| tiny.gguf | decode 64 x1 | peer | 10.0 ± 0.0 | 5.0 ± 0.0 | 2.00 | 1.00 | 1.00 |", text)
        self.assertIn("depth 0, troupe: ", text)

    def test_the_share_of_the_limit_is_the_median_of_the_rounds_or_said_to_be_unknown(self):
        # The last round of each three is an outlier. Only decoding has a limit, as where a unit was not probed.
        self.fake("troupe", "SPEED = 1\nSHARE = {'share': (0.9, 0.87, 0.2)[(number - 1) % 3], 'limit': 'read'}" +
                  TROUPE)
        rows, _ = self.rows("-r", "3")
        self.assertEqual(rows["peer", "decode", 1, 0]["share"], 0.87)
        self.assertEqual(rows["peer", "decode", 1, 0]["limit"], "read")
        self.assertIsNone(rows["peer", "prefill", 1, 0]["share"])
        done = self.compare("-r", "3")
        self.assertRegex(done.stdout, r"decode 64 x1 .* 87 % of read \|")
        self.assertRegex(done.stdout, r"prefill 512 .* unknown \|")
        self.assertIn("run `troupe probe`", done.stderr)
        self.assertNotIn("run `troupe probe`", self.compare("-r", "1", "-p", "0").stderr)

    def test_a_loss_of_more_than_ten_percent_ends_with_one_and_says_where(self):
        baseline = self.path("speed.json")
        self.compare("-r", "1", "-b", "1,8", "--save-baseline", baseline)
        self.fake("troupe", "SPEED, SHARE = 0.91, {}" + TROUPE)
        held = self.compare("-r", "1", "-b", "1,8", "--baseline", baseline)
        self.assertEqual(held.stderr.count("held: "), 3)
        # Ours is slower, but so is the peer's: the machine.
        self.fake("troupe", "SPEED, SHARE = 0.5, {}" + TROUPE)
        self.fake("llama-bench", "SPEED = 0.5" + BENCH)
        lost = self.compare("-r", "1", "-b", "1,8", "--baseline", baseline, code=1)
        self.assertEqual(lost.stderr.count("held: "), 2)
        self.assertIn("LOST: tiny.gguf: decode 64 x8, KV f16, 2 threads, against peer: 1.25 instead of 2.50, 50.0 % "
                      "less", lost.stderr)
        self.compare("-r", "1", "-b", "1,8", "--baseline", baseline, "--max-loss", "60")
        less = self.compare("-r", "1", "-b", "1,2", "--baseline", baseline)
        self.assertIn("not measured: tiny.gguf: decode 64 x8", less.stderr)
        self.assertIn("new: tiny.gguf: decode 64 x2", less.stderr)

    def test_rows_below_their_goals_are_named_and_the_share_of_a_peer_follows_from_its_ratio(self):
        self.fake("troupe", "SPEED, SHARE = 1, {'share': 0.5, 'limit': 'read'}" + TROUPE)
        rows, _ = self.rows("-r", "1", "-b", "1", peers=["bench"])
        self.assertAlmostEqual(rows["peer", "decode", 1, 0]["peer_share"], 0.25)
        table = self.compare("-r", "1", "-b", "1", peers=["bench"])
        self.assertIn("| 50 % of read | 25 % |", table.stdout)
        self.assertEqual(table.stderr.count("BELOW"), 1)
        self.assertIn("decode 64 x1, KV f16, 2 threads, against peer: 50 % of read, goal 80 %", table.stderr)
        none = self.compare("-r", "1", "-b", "1", "--min-share", "50", peers=["bench"])
        self.assertNotIn("BELOW", none.stderr)
        faster = self.compare("-r", "1", "-b", "1", "--min-share", "50", "--min-ratio", "2.5", peers=["bench"])
        self.assertEqual(faster.stderr.count("2.00, goal 2.50"), 2)

    def test_a_machine_has_a_baseline_of_its_own_which_the_first_run_writes(self):
        machine = "MACHINE = {'cpu': 'a', 'revision': NUMBER, 'cpus': '0-1'}\n"
        plan = machine + "SPEED, SHARE = 1, {'share': 0.9, 'limit': 'read'}" + TROUPE
        arguments = ["-r", "1", "-b", "1", "--baseline", "auto"]
        with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.path("cache")}):
            self.assertIn("needs a probe", self.compare(*arguments, code=2).stderr)
            self.fake("troupe", plan.replace("NUMBER", "1"))
            self.assertIn("baseline from now on", self.compare(*arguments).stderr)
            self.assertIn("held", self.compare(*arguments).stderr)
            self.fake("troupe", plan.replace("NUMBER", "1").replace("SPEED, SHARE = 1", "SPEED, SHARE = 0.5"))
            self.assertIn("LOST", self.compare(*arguments, code=1).stderr)
            self.fake("troupe", plan.replace("NUMBER", "2"))  # another machine
            self.assertIn("baseline from now on", self.compare(*arguments).stderr)

    def test_a_baseline_that_says_nothing_of_this_run_is_an_error(self):
        baseline = self.path("speed.json")
        self.compare("-r", "1", "-p", "128", "-n", "0", "--save-baseline", baseline)
        other = self.compare("-r", "1", "-p", "64", "-n", "0", "--baseline", baseline, code=2)
        self.assertIn("nothing that was measured", other.stderr)
        with open(baseline, "w", encoding="ascii") as file:
            file.write("[]")
        self.assertIn("no result of --save-baseline", self.compare("--baseline", baseline, code=2).stderr)
        self.assertIn("No such file", self.compare("--baseline", self.path("none.json"), code=2).stderr)

    def test_a_batched_bench_that_loses_lines_is_run_again(self):
        self.fake("llama-batched-bench", "SPEED, LOST = 1, [8] if number == 1 else []" + BATCHED)
        rows, _ = self.rows("-r", "1", "-b", "1,8")
        self.assertEqual(len(self.calls("llama-batched-bench")), 2)
        self.assertEqual(len(rows["peer", "decode", 8, 0]["peer_ts"]["rounds"]), 1)
        self.fake("llama-batched-bench", "SPEED, LOST = 1, [8]" + BATCHED)
        self.assertIn("says nothing of batch size 8 in 3 runs", self.compare("-r", "1", "-b", "1,8", code=2).stderr)

    def test_what_is_missing_fails_or_prints_nonsense_is_named(self):
        done = self.compare("--peer", "x=" + self.path("none"), code=2)
        self.assertIn("none: there is no such program", done.stderr)
        done = self.compare("-m", self.path("none.gguf"), code=2)
        self.assertIn("none.gguf: there is no such model file", done.stderr)
        os.chmod(self.path("llama-bench"), 0o644)
        self.assertIn("cannot be executed", self.compare(code=2).stderr)
        for plan, said in (("print('loading')", "is not the JSON of llama-bench"), ("print('[{}]')", "n_prompt"),
                           ("print('oh', file=sys.stderr); sys.exit(3)", "ended with 3:\noh")):
            self.fake("llama-bench", plan)
            self.assertIn(said, self.compare("-r", "1", code=2).stderr)
        self.fake("troupe", "print('{}')")
        self.assertIn("is not the JSON of troupe bench", self.compare("-r", "1", code=2).stderr)
        self.assertIn("there is no peer", self.compare(peers=[], code=2).stderr)
        self.assertIn("nothing to measure", self.compare("-p", "0", "-n", "0", code=2).stderr)
        done = self.compare("-b", "8", "-p", "0", peers=["bench"], code=2)
        self.assertIn("JSON of troupe bench", done.stderr)
        self.fake("troupe", "SPEED, SHARE = 1, {}" + TROUPE)
        self.assertIn("need --peer-batched", self.compare("-b", "8", "-p", "0", peers=["bench"], code=2).stderr)


if __name__ == "__main__":
    unittest.main()
