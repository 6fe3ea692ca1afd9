"""bench/kernel_ratios.py against a kernels_bench that only pretends."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)


def entry(name, scalar, plain, aggregate="median"):
    return {"name": f"{name}_{aggregate}", "run_name": name, "run_type": "aggregate", "aggregate_name": aggregate,
            "x_scalar": scalar, "x_plain": plain}


class KernelRatiosTest(unittest.TestCase):
    def call(self, printed, code=0, *flags):
        with tempfile.TemporaryDirectory() as folder:
            fake = os.path.join(folder, "bench")
            with open(fake, "w") as file:
                file.write(f"#!{sys.executable}\nimport sys\n"
                           f"open({folder + '/calls'!r}, 'w').write(repr(sys.argv[1:]))\n"
                           f"sys.stderr.write('it says why')\nprint({printed!r})\nsys.exit({code})\n")
            os.chmod(fake, 0o755)
            done = subprocess.run([sys.executable, "-B", SCRIPT, "--kernels-bench", fake, *flags], capture_output=True,
                                  text=True)
            calls = os.path.join(folder, "calls")
            with open(calls) as file:
                self.arguments = file.read()
            return done

    def test_medians_become_a_table_and_those_below_their_factor_stand_out(self):
        done = self.call(json.dumps({"benchmarks": [
            entry("matmul/avx2/Q8_0/m1_cached", 2.0, 3.04),
            entry("matmul/avx2/Q8_0/m1_cached", 9.0, 9.0, "mean"),
            entry("matmul/amx/Q8_0/m1_cached", 12.34, 4.94),
            entry("attention/avx512/f16/t16", 88.8, 120.0),
            entry("rope/avx2", 1.0, 2.94),
            entry("rope/scalar", 1.0, 2.0),
            {"name": "prepare_bf16_split/amx", "run_name": "prepare_bf16_split/amx"},  # has no twin
        ]}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), [
            "| kernel | avx2 | avx512 | amx |",
            "|---|---:|---:|---:|",
            "| matmul Q8_0, 1 row, from the cache | *2.0 (3.0)* |  | **12 (4.9)** |",
            "| attend_split f16, 128 query rows |  | 89 (120) |  |",
            "| rope | **1.0 (2.9)** |  |  |",
        ])
        self.assertIn("--benchmark_repetitions=5", self.arguments)

    def test_the_filter_is_passed_on(self):
        self.call(json.dumps({"benchmarks": [entry("add/avx2", 4, 4)]}), 0, "--filter", "^add/")
        self.assertIn("--benchmark_filter=^add/", self.arguments)

    def test_what_goes_wrong_is_said(self):
        for printed, code, says in (("{}", 3, "it says why"), ("nonsense", 0, "cannot be understood"),
                                    ('{"benchmarks": []}', 0, "no kernel with a twin")):
            done = self.call(printed, code)
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr)
        missing = subprocess.run([sys.executable, "-B", SCRIPT, "--kernels-bench", "/nonexistent"], capture_output=True,
                                 text=True)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("/nonexistent: No such file", missing.stderr)


if __name__ == "__main__":
    unittest.main()
