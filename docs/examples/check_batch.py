"""python_batch.py: check_batch.py SOCKET. Prompts are answered once each, also by a run that goes on where another was cut."""
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_batch.py")


def main(socket):
    with tempfile.TemporaryDirectory(prefix="batch-") as folder:
        prompts, answers = os.path.join(folder, "prompts.jsonl"), os.path.join(folder, "answers.jsonl")

        def write(rows):
            with open(prompts, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

        def run(code, says):
            done = subprocess.run([sys.executable, "-B", SCRIPT, prompts, answers, socket], capture_output=True, text=True)
            assert done.returncode == code and says in done.stderr, (done.returncode, done.stderr)
            with open(answers) as file:
                return {row["id"]: row for row in map(json.loads, file)}

        rows = [{"id": str(number), "prompt": f"Chapter {number}:", "max_tokens": 8} for number in range(20)]
        rows.append({"id": "talk", "prompt": [{"role": "user", "content": "Hello"}], "max_tokens": 4})
        write(rows)
        first = run(0, "0 were there, 21 came, 0 are left")
        assert sorted(first) == sorted(row["id"] for row in rows) and first["talk"]["tokens"] <= 4, first
        # What a kill leaves: some lines, and a half one.
        with open(answers) as file:
            lines = file.readlines()
        with open(answers, "w") as file:
            file.write("".join(lines[:7]) + lines[7][:10])
        assert run(0, "7 were there, 14 came, 0 are left") == first
        assert run(0, "21 were there, 0 came, 0 are left") == first
        # What is refused is left, and said.
        write([*rows, {"id": "long", "prompt": "word " * 5000}])
        assert run(75, "21 were there, 0 came, 1 are left") == first
        write([*rows, {"id": "1", "prompt": "a second one of this id"}])
        run(2, "prompts.jsonl:22: it needs a prompt, and an id of its own")


main(sys.argv[1])
