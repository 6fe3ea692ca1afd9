#!/usr/bin/env bash
# Sums up what tests skipped, by reason, from ctest's log. Nothing where nothing was skipped.
#
#   tools/skipped.sh build/release/Testing/Temporary/LastTest.log
#
# Programs print `skipped<tab>case|part<tab>REASON[: DETAIL]<tab>CASE` (tests/support/catch_main.cpp); those that could
# not be run at all, and scripts, `skipped: REASON`.
set -euo pipefail

awk -F'\t' '
  function count(kind, text, name,    colon, reason, detail) {
    colon = index(text, ": ")
    reason = colon ? substr(text, 1, colon - 1) : text
    detail = colon ? substr(text, colon + 2) : ""
    if (!(reason in has)) reasons[++num_reasons] = reason
    has[reason] = 1
    if (!((kind, reason, program, name) in counted)) ++num[kind, reason]
    counted[kind, reason, program, name] = 1
    if (!((kind, program, name) in known)) ++total[kind]
    known[kind, program, name] = 1
    if (detail == "" || (reason, detail) in mentioned) return
    mentioned[reason, detail] = 1
    if (++num_details[reason] <= 4) details[reason] = joined(details[reason], detail)
  }
  function plural(n, word) { return n " " word (n == 1 ? "" : "s") }
  function joined(text, more) { return text (text == "" ? "" : ", ") more }
  function counts(programs, cases, parts,    text) {
    if (programs) text = plural(programs, "program")
    if (cases) text = joined(text, plural(cases, "test case"))
    if (parts) text = joined(text, "parts of " plural(parts, "test case"))
    return text
  }
  /^[0-9]+\/[0-9]+ Test: / { program = $0; sub(/^[^:]*: /, "", program); next }
  $1 == "skipped" && NF == 4 { count($2, $3, $4); next }
  /^skipped: all [0-9]+ test cases$/ { ++all; next }
  /^skipped: / { count("program", substr($0, 10), "") }
  END {
    if (num_reasons == 0) exit
    print "Skipped: " counts(total["program"], total["case"], total["part"]) \
          (all ? "; all cases of " plural(all, "program") : "")
    for (i = 1; i <= num_reasons; ++i) {
      reason = reasons[i]
      more = num_details[reason] - 4
      print "  " counts(num["program", reason], num["case", reason], num["part", reason]) ": " reason \
            (details[reason] == "" ? "" : ": " details[reason]) (more > 0 ? " and " more " more" : "")
    }
  }' "$1"
