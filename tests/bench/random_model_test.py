"""bench/random_model.py: the geometries are those of the real models, and what it writes is a model file."""
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

TROUPE = sys.argv.pop(1)
SCRIPT = sys.argv.pop(1)

# Millions of parameters of the released models.
PARAMETERS = {"mamba-130m": 129.1, "mamba2-130m": 129.0, "rwkv7-world-0.1b": 191.1, "rwkv6-world-1b6": 1599.9,
              "qwen2.5-0.5b": 494.0, "qwen2.5-3b": 3085.9, "tinyllama-1.1b": 1100.0, "llama-3.2-1b": 1235.8, "gemma-3-1b": 999.9,
              "falcon-h1-0.5b": 521.4, "lfm2-350m": 354.5, "lfm2-1.2b": 1170.3, "qwen3-30b-a3b": 30532.1, "lfm2-8b-a1b": 8339.9, "olmoe-1b-7b": 6919.2, "smollm3-3b": 3075.1, "olmo2-1b": 1484.9, "olmo3-7b": 7298.0,
              "granite-3.3-2b": 2533.5, "gemma-2b": 2506.2, "command-r-35b": 34980.8, "command-r7b": 8028.0, "exaone4-1.2b": 1279.4,
              "exaone4-32b": 32003.2, "ernie4.5-0.3b": 360.7, "seed-oss-36b": 36151.1, "hunyuan-0.5b": 539.0, "qwen2-vl-2b": 1543.7,
              "qwen3-vl-4b": 4022.5, "minicpm-2b": 2724.9, "internlm2.5-1.8b": 1889.1, "starcoder2-3b": 3030.4, "phi-2": 2779.7,
              "stablelm-2-1.6b": 1644.5, "ministral-3-3b": 3429.0, "gpt-oss-20b": 20914.8,
              "qwen3-next-80b-a3b": 79674.4, "qwen3.5-0.8b": 752.4, "qwen3.5-4b": 4205.8}


PYTHON = "/usr/bin/python3"  # the script's own: Debian's numpy belongs to it
SKIPPED = 77


def call(*arguments):
    return subprocess.run([PYTHON, "-B", SCRIPT, *arguments], capture_output=True, text=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def inspect(path):
    done = subprocess.run([TROUPE, "inspect", path, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class RandomModelTest(unittest.TestCase):
    def test_every_geometry_has_as_many_parameters_as_the_real_model(self):
        for name, millions in PARAMETERS.items():
            done = call("--list", "--geometry", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            *tensors, total = done.stdout.splitlines()
            self.assertEqual(total, f"{name}: {millions} M parameters")
            names = [line.split()[0] for line in tensors]
            self.assertEqual(len(set(names)), len(names), name)

    def test_what_converters_keep_precise_is_f32(self):
        types = {}
        for name in PARAMETERS:
            for line in call("--list", "--geometry", name).stdout.splitlines()[:-1]:
                tensor, kind, shape = line.split("  ")
                types[re.sub(r"blk\.\d+\.", "", tensor)] = kind
                if " x " not in shape:
                    self.assertEqual(kind, "F32", line)
        precise = ("ssm_conv1d.weight", "ssm_a", "ffn_gate_inp.weight", "ssm_norm.weight", "time_mix_w1.weight",
                   "time_mix_lerp_fused.weight")
        self.assertEqual({types[name] for name in precise}, {"F32"})
        self.assertEqual({types[name] for name in ("ssm_in.weight", "ssm_dt.weight", "ffn_down_exps.weight",
                                                   "time_mix_a1.weight", "token_embd.weight")}, {"F16"})

    def test_a_file_is_read_back_with_the_shapes_and_the_values_it_should_have(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mamba.gguf")
            small = ("--geometry", "mamba-130m", "--layers", "2", "--vocab-size", "512")
            done = call(path, *small)
            self.assertEqual(done.returncode, 0, done.stderr)
            object = inspect(path)
            self.assertEqual(object["metadata"]["general.architecture"], "mamba")
            self.assertEqual(object["metadata"]["mamba.ssm.time_step_rank"], 48)
            self.assertEqual(object["metadata"]["tokenizer.ggml.model"], "no_vocab")
            shapes = {tensor["name"]: (tensor["type"], tensor["shape"]) for tensor in object["tensors"]}
            self.assertEqual(len(shapes), 2 * 10 + 2)
            self.assertEqual(shapes["blk.1.ssm_in.weight"], ("F16", [768, 3072]))
            self.assertEqual(shapes["blk.1.ssm_a"], ("F32", [16, 1536]))
            self.assertEqual(shapes["token_embd.weight"], ("F16", [768, 512]))

            # The last tensor ends the file; decays lie before it, in their place, from -1 to -16.
            data = read(path)
            norm = struct.unpack("<768f", data[-768 * 4:])
            self.assertAlmostEqual(statistics.mean(norm), 1.0, delta=0.02)  # 5 standard errors
            self.assertAlmostEqual(statistics.stdev(norm), 0.1, delta=0.02)
            decays = struct.pack("<16f", *range(-1, -17, -1)) * 1536
            self.assertEqual(data.count(decays), 2)

            again = os.path.join(folder, "again.gguf")
            call(again, *small)
            self.assertEqual(read(again), data)
            call(again, *small, "--seed", "2")
            self.assertNotEqual(read(again), data)

    def test_a_vocabulary_is_taken_along_and_filled_up(self):
        embedded = os.path.join(os.path.dirname(SCRIPT), "..", "models", "tales-5m-tq2_0.gguf")
        small = ("--geometry", "rwkv7-world-0.1b", "--layers", "1")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rwkv7.gguf")
            done = call(path, *small, "--vocab-size", "2050", "--vocabulary", embedded)
            self.assertEqual(done.returncode, 0, done.stderr)
            metadata = inspect(path)["metadata"]
            self.assertEqual(metadata["tokenizer.ggml.tokens"]["length"], 2050)
            self.assertEqual(metadata["tokenizer.ggml.token_type"]["length"], 2050)
            ids = subprocess.run([TROUPE, "tokenize", "--ids", "-m", path, "Once upon a time"],
                                 stdin=subprocess.DEVNULL, capture_output=True,
                                 text=True).stdout
            self.assertEqual(ids, "[1, 424, 437, 261, 399]\n")
            done = call(path, *small, "--vocab-size", "512", "--vocabulary", embedded)
            self.assertEqual(done.returncode, 1)
            self.assertIn("has 2048 tokens, more than the 512 of this geometry", done.stderr)

    def test_heads_are_a_flag_and_the_width_follows_where_it_is_theirs(self):
        def sizes(*arguments):
            lines = call("--list", "--layers", "1", *arguments).stdout.splitlines()
            return {line.split("  ")[0]: line.split("  ")[2] for line in lines[:-1]}

        both = sizes("--geometry", "olmo2-1b", "--heads", "4")
        self.assertEqual((both["blk.0.attn_q.weight"], both["blk.0.attn_k.weight"]), ("512 x 512", "512 x 512"))
        own = sizes("--geometry", "seed-oss-36b", "--heads", "4", "--kv-heads", "2")
        self.assertEqual((own["blk.0.attn_q.weight"], own["blk.0.attn_k.weight"]), ("5120 x 512", "5120 x 256"))

    def test_a_draft_is_the_models_first_layer_with_as_much_noise_as_asked_for(self):
        small = ("--geometry", "tinyllama-1.1b", "--vocab-size", "300", "--sharpness", "8")
        with tempfile.TemporaryDirectory() as folder:
            path, draft = (os.path.join(folder, name) for name in ("model.gguf", "draft.gguf"))
            done = call(path, *small, "--layers", "1", "--draft", draft)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(read(draft), read(path))
            done = call(path, *small, "--layers", "1", "--draft", draft, "--draft-noise", "0.5")
            self.assertEqual(done.returncode, 0, done.stderr)
            different = sum(a != b for a, b in zip(read(path)[::64], read(draft)[::64]))
            of_two = 2048 * 2048 + 2048 * 5632  # attn_output and ffn_down, of two bytes each
            self.assertGreater(different, 0.8 * 2 * of_two / 64 / 2)  # the exponents hardly differ
            self.assertLess(different, 2 * of_two / 64)

    def test_what_goes_wrong_is_said(self):
        self.assertIn("are for tinyllama-1.1b", call("--geometry", "mamba-130m", "--draft", "d", "--list").stderr)
        self.assertIn("invalid choice", call("x", "--geometry", "gpt-5").stderr)
        self.assertIn("name the file to write", call("--geometry", "mamba-130m").stderr)
        done = call("/nonexistent/x.gguf", "--geometry", "mamba-130m")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No such file", done.stderr)


if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode != 0:
    print(f"skipped: {PYTHON} has no numpy (Debian's python3-numpy)")
    sys.exit(SKIPPED)
unittest.main()
