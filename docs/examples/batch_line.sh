#!/bin/sh
# One prompt of a batch: batch_line.sh PROMPT. Its answer goes into answers/, under a name that follows from the prompt; one that is there is
# not asked for again, and one that was interrupted is not there. `xargs -d '\n' -n 1 -P 8 batch_line.sh < prompts.txt` asks
# for eight at once.
set -eu
file=answers/$(printf %s "$1" | sha256sum | cut -c1-16).txt
if [ -e "$file" ]; then exit 0; fi
troupe run -n 200 --seed 1 --priority 100 "$1" </dev/null >"$file.part"
mv "$file.part" "$file"
