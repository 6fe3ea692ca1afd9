#!/usr/bin/env python3
"""Vectors of odd texts by all-MiniLM-L6-v2, as its authors' library computes them, for tests/real/minilm_test.cpp.

    expect_vectors.py FOLDER OUT.json

FOLDER is the model as Hugging Face stores it. Needs transformers with flax (and so jax), in an environment of its own.
"""
import json
import sys

import numpy
import transformers

TEXTS = ["A cat sits on the mat.", "", "e", "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG!", "caf\u00e9 na\u00efve \u00dcBER stra\u00dfe",
         "\u6f22\u5b57\u3068\u304b\u306a\u4ea4\u3058\u308a", "na\u0303o e\u0301 \u1e9b\u0323", "\U0001f642 smile \U0001f468\u200d\U0001f469\u200d\U0001f467",
         "x" * 120 + " unfathomably-hyphenated_words 3.14159e-10", "line one\n\tline\u00a0two\u3000three\u200bfour",
         "king castle star night " * 60]


def main(folder, out):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.FlaxAutoModel.from_pretrained(folder)
    rows = []
    for text in TEXTS:
        batch = tokenizer(text, truncation=True, max_length=512, return_tensors="np")
        hidden = numpy.asarray(model(**batch).last_hidden_state, dtype=numpy.float64)[0]
        mean = hidden.mean(axis=0)
        rows.append({"text": text, "ids": batch["input_ids"][0].tolist(),
                     "vector": [round(x, 7) for x in (mean / numpy.linalg.norm(mean)).tolist()]})
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"by": f"transformers {transformers.__version__}", "texts": rows}, file)
        file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
