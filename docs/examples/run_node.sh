#!/bin/sh
# Runs a program with packages that lie elsewhere: run_node.sh FOLDER PROGRAM.mjs ARGUMENT...
# node looks for packages in its working folder if the program comes through stdin.
set -eu
folder=$1 program=$2
shift 2
test -e "$folder/node_modules/.installed" || { echo "skipped: the packages of tests/clients are not installed"; exit 77; }
cd "$folder" && exec node --input-type=module - "$@" <"$program"
