#!/usr/bin/env bash
# The main job on a GPU with the 1B shape of the reference runtime: measured costs, build, warm-up, canary against eager and
# against the runtime's default, release. usage: main_job.sh OUT [no-eager]   (about five minutes; needs trtgate's dependencies)
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
work=$(mktemp -d)
run() { echo; echo "\$ trtgate $*"; python3 -m trtgate "$@"; echo "exit $?"; }
{
  run doctor
  run calibrate profiles/reference-1b.yaml --out "$work/costs.json"
  run build profiles/reference-1b.yaml --costs "$work/costs.json" --out "$work/tuned"
  run warmup "$work/tuned"
  run canary "$work/tuned" --store "$work/releases" --baseline default
  run release "$work/tuned" --store "$work/releases"
  if [ "${2:-}" != no-eager ]; then
    run build profiles/reference-1b.yaml --costs "$work/costs.json" --out "$work/against-eager" --quiet > /dev/null
    cp "$work/tuned/warmup.json" "$work/against-eager/"
    run canary "$work/against-eager" --store "$work/releases" --baseline eager
  fi
  run release list reference-1b --store "$work/releases"
} 2>&1 | tee "$out/main_job.log"
cp "$work/costs.json" "$work/tuned/plan.json" "$work/tuned/warmup.json" "$out/"
cp "$work/tuned/ledger.jsonl" "$out/ledger-default.jsonl"
cp "$work/against-eager/ledger.jsonl" "$out/ledger-eager.jsonl" 2> /dev/null
tar -C "$work" -czf "$out/logs.tar.gz" tuned/logs
