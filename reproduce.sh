#!/usr/bin/env bash
# Every experiment, a line or a loop for each row of its table, in flags of train.py alone.
#
#   bash reproduce.sh ID...                     miniature experiments, on this machine's CPU (EXPERIMENTS below)
#   bash reproduce.sh paper [ENV [MODEL]]       the paper's Table 2. ENV: alfworld webshop search; MODEL: 3b 7b 1.7b
#   bash reproduce.sh --list ...                prints the commands and runs nothing
#   bash reproduce.sh --dry_run ...             plans every run: settings, rows, tokens, memory; loads no weights
#
# A run is results/ID/ENV-METHOD-sSEED, what it prints results/runs/ID-ENV-METHOD-sSEED.txt. A run whose log holds its
# last step is skipped; one that was cut goes on from its newest checkpoint. Variables that change this:
#   SEEDS="1 2"   in place of an experiment's own          JOBS=1     runs at a time
#   MINI=...      what all miniature runs share            TUNING=... how the paper's models are trained
#   GATE=0.6      the matched gate of `tva`                LAUNCH=... what starts a run of the paper's
set -euo pipefail
cd "$(dirname "$0")"

EXPERIMENTS="main long tva tva-noise data tokens models baselines ablation horizon unseen"

# Learning rate, KL and batch are the defaults of the small policies, chosen on plain GRPO; seed 0 was for choosing.
MINI=${MINI:---model tiny --threads 1 --eval_tasks 512 --eval_every 50}
SECONDS_A_STEP=7 # two threads: 6 s, and 36 s an evaluation of 512 tasks (results/job/*/timing.jsonl)

# Full fine-tuning of float32 weights under bf16 autocast, as verl does. Where memory is short, not the paper's:
# LAUNCH="accelerate launch" TUNING="--lora 32 --lr 1e-5 --dtype bfloat16 --micro_tokens 4096"
TUNING=${TUNING:---lora 0 --dtype float32 --gradient_checkpointing --micro_tokens 8192}
LAUNCH=${LAUNCH:-accelerate launch --mixed_precision bf16}

usage() { # [COMPLAINT]
  echo "$@" >&2
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

mode=run runs=0 steps_in_all=0 failed=()
declare -A names=() # of the runs at work, by process
trap 'kill "${!names[@]}" 2>/dev/null || true; wait; exit 130' INT TERM # each run ends its step and saves

go() { # RUN STEPS COMMAND...: lists, plans or (in the background) does one run of the experiment $id
  local run=$id/$1 steps=$2 log=results/$id/$1/log.jsonl
  local command=("${@:3}" --run "$run" --steps "$steps")
  [[ ! -d results/$run ]] || command+=(--resume)
  runs=$((runs + 1)) steps_in_all=$((steps_in_all + steps))
  if [[ $mode == list ]]; then
    echo "${command[*]}"
  elif [[ $mode == dry_run ]]; then
    echo "# ${command[*]}"
    "${command[@]}" --dry_run </dev/null
  elif [[ -f $log && $(tail -n 1 "$log") == "{\"step\": $steps, "*"}" ]]; then
    echo "complete: $run"
  else
    while ((${#names[@]} >= JOBS)); do collect; done
    echo "$(date +%H:%M:%S) $run"
    mkdir -p results/runs
    "${command[@]}" >"results/runs/${run/\//-}.txt" 2>&1 &
    names[$!]=$run
  fi
}

collect() { # waits until a run has ended, and notes those that failed
  wait -n || true
  for pid in "${!names[@]}"; do
    kill -0 "$pid" 2>/dev/null && continue
    wait "$pid" || failed+=("${names[$pid]} (see results/runs/${names[$pid]/\//-}.txt)")
    unset "names[$pid]"
  done
}

# ------------------------------------------------------------------------------------------------ in miniature

mini() { # STEPS ENV METHOD FLAGS...: one row of a table, with the seed of this round
  [[ " ${SEEDS:-$seeds} " != *" $seed "* ]] ||
    go "$2-$3-s$seed" "$1" python train.py --env "$2" $MINI --seed "$seed" "${@:4}"
}

main() { # ADRS > GRPO by 8.6 to 19.5 points? Needs models/tiny-webshop and tiny-search too (warmstart.py)
  seeds="1 2 3 4 5"
  for env in alfworld webshop search; do
    mini 150 $env grpo --method none
    mini 150 $env gigpo --method none --backbone gigpo
    mini 150 $env sdar --method sdar
    mini 150 $env adrs --method adrs
    mini 150 $env adrs-tva --method adrs --tva
    mini 150 $env gigpo-adrs --method adrs --backbone gigpo
    mini 150 $env gigpo-adrs-tva --method adrs --tva --backbone gigpo
    mini 150 $env adrs-always --method adrs --tva --preset always --eta 0.3 # these two are ours: LOG.md, 2026-12-06
    mini 150 $env adrs-gap --method adrs --tva --preset always --eta 0.3 --score gap
  done
}

long() { # does the lead hold?
  seeds="1 2 3"
  mini 300 alfworld grpo --method none
  mini 300 alfworld gigpo --method none --backbone gigpo
  mini 300 alfworld sdar --method sdar
  mini 300 alfworld adrs-tva --method adrs --tva
}

tva() { # on GiGPO, where the published gate acts; the last row has TVA's mean gate and no TVA
  seeds="1 2 3 4 5"
  mini 150 alfworld gigpo-adrs --method adrs --backbone gigpo --eval_every 10
  mini 150 alfworld gigpo-adrs-tva --method adrs --backbone gigpo --eval_every 10 --tva
  mini 150 alfworld gigpo-adrs-flat --method adrs --backbone gigpo --eval_every 10 --flat_gate "${GATE:-0.6}"
}

tva-noise() { # does the gate protect where skills are wrong?
  seeds="1 2 3"
  for share in 0 0.25 0.5 0.75 1; do
    mini 150 alfworld "adrs-noise$share" --method adrs --skill_noise $share
    mini 150 alfworld "adrs-tva-noise$share" --method adrs --tva --skill_noise $share
    mini 150 alfworld "adrs-pooled-noise$share" --method adrs --tva --tva_pool 0.9 --skill_noise $share
  done
}

data() { # is 60 % of the tasks with ADRS worth more than all of them with GRPO?
  seeds="1 2 3"
  for share in 0.2 0.4 0.6 0.8 1.0; do
    mini 150 alfworld "grpo-data$share" --method none --fraction $share
    mini 150 alfworld "adrs-tva-data$share" --method adrs --tva --fraction $share
  done
}

tokens() { # what the teacher says of each kind of token, at every evaluation
  seeds="1 2 3"
  mini 150 alfworld grpo --method none --eval_every 25 --episodes 16
  mini 150 alfworld sdar --method sdar --eval_every 25 --episodes 16
  mini 150 alfworld adrs-tva --method adrs --tva --eval_every 25 --episodes 16
}

models() { # needs two others first: python warmstart.py --env alfworld --width 64 --layers 2 --out models/alfworld-64x2
  seeds="1 2 3"
  for model in models/alfworld-64x2 tiny models/alfworld-256x4; do
    size=${model#models/alfworld-}
    mini 150 alfworld "grpo-$size" --model $model --method none
    mini 150 alfworld "adrs-tva-$size" --model $model --method adrs --tva
  done
}

baselines() { # every method of Table 2
  seeds="1 2 3"
  SEEDS=1 mini 0 alfworld vanilla --method vanilla
  SEEDS=1 mini 0 alfworld skill-prompt --method skill_prompt
  mini 150 alfworld opsd --method opsd
  mini 150 alfworld grpo --method none
  mini 150 alfworld gigpo --method none --backbone gigpo
  mini 150 alfworld skill-grpo --method skill_grpo
  mini 150 alfworld grpo-opsd --method grpo_opsd
  mini 150 alfworld skill-sd --method skill_sd
  mini 150 alfworld rlsd --method rlsd
  mini 150 alfworld sdar --method sdar
  mini 150 alfworld adrs --method adrs
  mini 150 alfworld adrs-tva --method adrs --tva
}

ablation() { # one thing at a time, from ADRS with TVA on GRPO
  seeds="1 2 3"
  while read -r name flags; do
    mini 150 alfworld "adrs-tva-$name" --method adrs --tva $flags
  done <<'ROWS'
full
uncentred         --centre none
centred-in-group  --centre group
unscaled          --scale none
scaled-in-group   --scale group
scaled-globally   --scale global
gap               --score gap
noise             --score noise
wrong-skill       --skill shuffled
no-skill          --skill none
pre-whiten        --join pre_whiten
raw               --join raw
sum-only          --join sum_only
unclipped         --clip_mode none
fixed-clip        --clip_mode fixed
always            --preset always
eta0.1            --eta 0.1
no-penalty        --penalty 0
frozen-teacher    --teacher frozen
ema-teacher       --teacher ema
ROWS
}

horizon() { # model calls an episode
  seeds="1 2 3"
  for turns in 6 8 10; do
    mini 150 alfworld "grpo-turns$turns" --method none --max_turns $turns
    mini 150 alfworld "adrs-tva-turns$turns" --method adrs --tva --max_turns $turns
  done
}

unseen() { # the same training, judged in rooms known from training and in new ones
  seeds="1 2 3"
  for split in seen unseen; do
    mini 150 alfworld "grpo-$split" --method none --eval_split $split
    mini 150 alfworld "adrs-tva-$split" --method adrs --tva --eval_split $split
  done
}

# ------------------------------------------------------------------------------------------------ at full size
#
# What the authors' own ADRS runs took, from their logs (means over steps 1 to 150, hours with validation; vLLM, H20 or
# H100), and what is always there in GiB, in full (float32 weights, their copy for the KL, gradients, AdamW's moments)
# and with LoRA 32 in bfloat16. Whole in every process; FSDP shares it out. A run without a teacher saves its seconds.
# What is needed beside it: --dry_run. Our own throughput on a GPU is not measured yet (bench/README.md).
#
#   cell            GPUs  tokens a step  s a step  teacher s  hours  GiB a GPU  here full  here LoRA
#   alfworld 3b       4      2.89 M         397        39      16.5      54.5       57.5        6.6
#   alfworld 7b       8      2.47 M         412        38      17.2      66.3      141.9       15.4
#   alfworld 1.7b     4      2.68 M         298        38      12.4      62.5       32.0        3.7
#   webshop 3b        2      1.59 M         232        28       9.7      80.6       57.5        6.6
#   webshop 7b        8      1.66 M         157        20       6.6      65.0      141.9       15.4
#   webshop 1.7b      2      1.58 M         205        26       8.5      77.2       32.0        3.7
#   search 3b         4      2.42 M         394        37      16.4      54.9       57.5        6.6
#   search 7b         8      2.08 M         302        31      12.6      55.6      141.9       15.4
#   search 1.7b       4      1.60 M         144        24       6.0      61.5       32.0        3.7

cell() { # ENV MODEL: the rows of Table 2 for one model in one environment (method.md 1.9 and 4)
  local env=$1 size=$2 model adrs teach=(--placement raw_prefix)
  local protocol=(--group_size 8 --max_response 512 --lr 1e-6 --eval_temperatures 0.4) data=${1^^}_DATA
  case $size in
    3b) model=(Qwen/Qwen2.5-3B-Instruct) ;;
    7b) model=(Qwen/Qwen2.5-7B-Instruct) ;;
    1.7b) model=(Qwen/Qwen3-1.7B --thinking False) ;;
    *) usage "no model $size: 3b, 7b or 1.7b" ;;
  esac
  case $env in # theirs: 128 draws of the 140 seen games; 128 goals that training may hold too; all 51,713 questions
    alfworld)
      protocol+=(--groups 16 --max_turns 50 --mini_rows 256 --kl 0.01)
      protocol+=(--eval_split seen --eval_tasks 0 --eval_every 5)
      ;;
    webshop)
      protocol+=(--groups 16 --max_turns 15 --mini_rows 64 --kl 0.01 --env_args scheme=verl)
      protocol+=(--eval_split seen --eval_tasks 128 --eval_every 5)
      ;;
    search) # the five sources that are not trained on; the other two: evaluate.py --split seen
      protocol+=(--groups 128 --max_turns 4 --mini_rows 256 --kl 0.001)
      protocol+=(--eval_split unseen --eval_tasks 0 --eval_every 25)
      ;;
    *) usage "no environment $env: alfworld, webshop or search" ;;
  esac
  case $env-$size in # as their index says; the token term shows in the log of search 3b alone
    alfworld-3b) adrs=(--eta 0.1 --gate_norm) ;;
    alfworld-1.7b) adrs=(--eta 0.1 --lr 2e-6) ;;
    webshop-1.7b) adrs=(--eta 0.02 --gate_norm) ;;
    webshop-* | search-3b) adrs=(--eta 0.02) ;;
    *) adrs=(--eta 0.1) ;;
  esac
  [[ $mode != run || -n ${!data-} ]] || usage "set $data (docs/researcher.md): without it the games are generated ones"
  row vanilla 0 --method vanilla
  row skill-prompt 0 --method skill_prompt
  row opsd 150 --method opsd "${teach[@]}"
  row grpo 150 --method none
  row gigpo 150 --method none --backbone gigpo
  row skill-grpo 150 --method skill_grpo
  row grpo-opsd 150 --method grpo_opsd "${teach[@]}"
  row skill-sd 150 --method skill_sd "${teach[@]}"
  row rlsd 150 --method rlsd "${teach[@]}"
  row sdar 150 --method sdar "${teach[@]}"
  row adrs 150 --method adrs --preset paper "${teach[@]}" "${adrs[@]}"
  row adrs-tva 150 --method adrs --preset paper --tva --level L2-row "${teach[@]}" "${adrs[@]}"
}

row() { # METHOD STEPS FLAGS...: a row of `cell`, whose variables it reads
  for seed in ${SEEDS:-0}; do
    go "$env-$size-$1-s$seed" "$2" $LAUNCH train.py --env "$env" --model "${model[@]}" "${protocol[@]}" $TUNING \
      --seed "$seed" "${@:3}"
  done
}

# ------------------------------------------------------------------------------------------------ what was asked for

asked=()
for argument in "$@"; do
  case $argument in
    --list) mode=list ;;
    --dry_run) mode=dry_run ;;
    -*) usage "no option $argument" ;;
    *) asked+=("$argument") ;;
  esac
done
if [[ ${asked[0]-} == paper ]]; then
  ((${#asked[@]} <= 3)) || usage "too many words behind paper"
  id=paper JOBS=${JOBS:-1}
  for env in ${asked[1]:-alfworld webshop search}; do
    for model in ${asked[2]:-3b 7b 1.7b}; do cell "$env" "$model"; done
  done
else
  ((${#asked[@]})) || usage "name an experiment"
  for id in "${asked[@]}"; do
    [[ " $EXPERIMENTS " == *" $id "* ]] || usage "no experiment $id: $EXPERIMENTS"
  done
  export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
  JOBS=${JOBS:-2}
  for id in "${asked[@]}"; do
    for seed in ${SEEDS:-1 2 3 4 5}; do "$id"; done # what is cut by time has every method with fewer seeds
  done
  [[ $mode != list ]] ||
    echo "# $runs runs, $steps_in_all steps, about $((steps_in_all * SECONDS_A_STEP / 3600)) hours on two cores" >&2
fi
while ((${#names[@]})); do collect; done
((${#failed[@]} == 0)) || { printf 'failed: %s\n' "${failed[@]}" >&2 && exit 1; }
