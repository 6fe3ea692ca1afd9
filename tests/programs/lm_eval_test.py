"""lm-eval against the server, with the two tasks of tasks/: one of choices (log probabilities) and one of generation.

    lm_eval_test.py TROUPE
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

from support import HERE, ROLES, real_weights, run_in, serve

TROUPE = run_in("evaluation")
GEMMA = real_weights("gemma-3-270m-q4_k_m.gguf")
CHOICES, GENERATION = "troupe_capitals", "troupe_next_number"


class LmEvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "gemma", "-c", "1024", "-m", GEMMA, "--chat-template", ROLES)
        cls.addClassCleanup(cls.server.end)
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-programs-")
        cls.addClassCleanup(cls.folder.cleanup)

    def evaluate(self, api, tasks, model="local-completions", more="", options=()):
        """The results, and the model's answers in the order of the tasks' questions."""
        out = tempfile.mkdtemp(dir=self.folder.name)
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", "run", "--model", model, "--model_args",
             f"model=gemma,base_url={self.server.url()}/v1/{api}{more}", "--include_path", os.path.join(HERE, "tasks"),
             "--tasks", ",".join(tasks), "--output_path", out, "--log_samples", *options],
            cwd=os.path.join(HERE, "../.."), capture_output=True, text=True, timeout=240,
            env={**os.environ, "HF_HOME": self.folder.name, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])
        with open(glob.glob(out + "/**/results_*.json", recursive=True)[0]) as file:
            results = json.load(file)["results"]
        answers = []
        for task in tasks:
            with open(glob.glob(out + f"/**/samples_{task}_*.jsonl", recursive=True)[0]) as file:
                answers += sorted((sample["doc_id"], sample["resps"]) for sample in map(json.loads, file))
        return results, answers

    def test_scores_are_those_that_are_stored_whatever_runs_at_once(self):
        begun = ("--system_instruction", "<bos>")  # the program sends tokens, and has the tokenizer add none
        results, answers = self.evaluate("completions", [CHOICES, GENERATION], more=",num_concurrent=16", options=begun)
        # Another kernel variant rounds otherwise, which may turn a close decision: one question of 40, two of 20.
        self.assertAlmostEqual(results[CHOICES]["acc,none"], 1.0, delta=0.026)
        self.assertAlmostEqual(results[GENERATION]["exact_match,stripped"], 0.85, delta=0.101)
        _, alone = self.evaluate("completions", [CHOICES, GENERATION], more=",num_concurrent=1",
                                 options=(*begun, "--limit", "5"))
        self.assertEqual(alone, [answer for answer in answers if answer[0] < 5])  # digit by digit

    def test_a_chat_is_the_prompt_that_its_template_makes(self):
        _, answers = self.evaluate("chat/completions", [GENERATION], model="local-chat-completions",
                                   options=("--apply_chat_template", "--limit", "5"))
        with open(os.path.join(HERE, "tasks/next_number.jsonl")) as file:
            questions = [json.loads(line)["numbers"] + ", " for line in file][:5]
        for question, (_, answer) in zip(questions, answers):
            body = {"prompt": f"<user>\n{question}</user>\n<assistant>\n", "max_tokens": 8, "temperature": 0, "stop": [",", "\n"]}
            _, text = self.server.post("/v1/completions", body)
            self.assertEqual(answer, [[json.loads(text)["choices"][0]["text"]]])


if __name__ == "__main__":
    unittest.main(verbosity=1)
