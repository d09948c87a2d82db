#!/usr/bin/env bash
# Submit, and write the answer into the summary and the outputs of a step of GitHub Actions.
set -euo pipefail

options=(--name "$NAME" --receipt "$RECEIPT" --json)
[ -z "${METRIC:-}" ] || options+=(--metric "$METRIC")
[ -z "${PART:-}" ] || options+=(--part "$PART")
answer=$(mktemp)
if ! holdfast board submit "$BOARD" "$PREDICTIONS" "${options[@]}" >"$answer"; then
  printf '### Submission refused\n\n%s\n' "$(python -c 'import json, sys; print(json.load(sys.stdin)["error"])' <"$answer")" >>"$GITHUB_STEP_SUMMARY"
  exit 1
fi
python - "$answer" "$RECEIPT" <<'PYTHON'
import json
import os
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
answer, head = document["answer"], document["receipt"]["head"]
low, high = answer["low"], answer["high"]
outcome = "better than all before" if answer["improved"] else "no improvement"
lines = [
    f"### {answer['question']}: {outcome}",
    "",
    f"- interval: {low:.4f} to {high:.4f}, with probability {answer['confidence']:.0%} for all submissions at once",
    *(f"- {what}: {text}" for what, text in document["details"].items()),
    f"- number {answer['seq']} in the ledger, whose head is `{head['hash']}`; receipt in `{sys.argv[2]}`",
    "",
]
with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
    file.write("\n".join(lines))
with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
    file.write(f"improved={str(answer['improved']).lower()}\nlow={low}\nhigh={high}\nseq={answer['seq']}\n")
PYTHON
