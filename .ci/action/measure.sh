#!/usr/bin/env bash
# Measures a plan in the base branch's checkout and in this one, and compares. Run it at the repository's root:
#   PLAN       the plan's file, of each checkout if it is in this repository; or the name of a shipped plan
#   BASE       the branch or commit to compare with
#   OUTPUT     a folder for the runs `base` and `head`, and for comment.md
#   PREPARE    a command for each checkout, such as `pip install -e .`; empty: none
#   THRESHOLD  the smallest change that matters, such as 3%
# The exit code is that of `stagebench compare`: 0 the same or faster, 1 slower, 2 not comparable. A base without the
# plan ends with 0.
set -euo pipefail
: "${PLAN:?}" "${BASE:?}" "${OUTPUT:?}"
PLAN="${PLAN#"$PWD/"}"
mkdir -p "$OUTPUT"
output="$(cd "$OUTPUT" && pwd)"
rm -rf "$output/base" "$output/head" # of an earlier call, which a run would continue
checkout="$output/checkout"
comment() { { echo '<!-- stagebench -->'; cat; } >"$output/comment.md"; }

measure() {
    local code=0
    (cd "$1" && bash -c "${PREPARE:-}")
    (cd "$1" && stagebench run "$PLAN" -o "$output/$2") || code=$?
    ((code < 2)) || exit "$code" # 1: a case failed; the comment names it
}

git worktree add --quiet --force --detach "$checkout" "$BASE"
trap 'git worktree remove --force "$checkout"' EXIT
if [[ $PLAN == *.toml && $PLAN != /* && ! -e $checkout/$PLAN ]]; then
    echo "\`$BASE\` has no \`$PLAN\`: there is nothing to compare with." | comment
    exit 0
fi
measure "$checkout" base
measure . head
code=0
(cd "$output" && stagebench compare base head --threshold "${THRESHOLD:-3%}" --markdown) >"$output/compared.md" || code=$?
comment <"$output/compared.md"
exit "$code"
