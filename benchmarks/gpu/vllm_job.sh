#!/usr/bin/env bash
# A real vLLM on a GPU through trtgate: capture, hits, lack of memory provoked, warm-up, a short canary against eager.
# usage: vllm_job.sh MODEL_FOLDER OUT PART...   with `vllm` on PATH; parts: live, warmup, canary
set -uo pipefail
cd "$(dirname "$0")/../.."
model=$1 out=$2
shift 2
work=/tmp/trtgate-vllm-job
run() { echo; echo "\$ trtgate $*"; python3 -m trtgate "$@"; echo "exit $?"; }
for part in "$@"; do
  case $part in
    live)
      python3 benchmarks/runtimes/vllm_live.py --model "$model" --version 0.26.0 --out "$out/vllm_live.json" \
        --parts tuned out_of_memory --env VLLM_USE_V2_MODEL_RUNNER=0 -- --load-format dummy ;;
    warmup)
      run build benchmarks/gpu/vllm-1b.yaml --out $work/c --set "model.path=$model" --quiet
      run warmup $work/c
      cp $work/c/plan.json $work/c/warmup.json "$out/" ;;
    canary)
      run canary $work/c --store $work/releases --baseline eager
      run release $work/c --store $work/releases
      cp $work/c/ledger.jsonl $work/c/verdict.json "$out/" ;;
  esac
done 2>&1 | tee "$out/vllm_job.log"
tar -C $work -czf "$out/vllm-logs.tar.gz" c/logs 2> /dev/null
