# What a job of launch/slurm does: looks at its hosts, trains, and by the exit code comes back or stays away.
set -u
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}  # Slurm does not tell MPI where ranks share cores
run=$root options=()
if $seeds; then
  run=$root/seed-$SLURM_ARRAY_TASK_ID
  options=(--train.seed "$SLURM_ARRAY_TASK_ID" --output.directory "$run")
fi
name=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
mkdir -p "$run/slurm"

say() { printf '%s job %s: %s\n' "$(date -u +%FT%TZ)" "$name" "$1"; }
event() {  # name [further fields of JSON]: a line of the run's events
  printf '{"time":"%s","host":"%s","event":"%s","job":"%s"%s}\n' "$(date -u +%FT%T.000Z)" "$(hostname)" "$1" "$name" "${2:-}" >> "$run/events.jsonl"
}
newest_step() { find "$run/checkpoints" -path '*/step-*/manifest.json' 2> /dev/null | sort | tail -n 1; }
# Slurm has begun to end the job, though there was time left: somebody cancelled it, or Slurm takes it back by itself.
taken_back() {
  local state
  state=$(squeue -h -j "$SLURM_JOB_ID" -o %T) || return 1  # the controller is away: it ends nothing
  [[ $state != RUNNING ]] && (($(date +%s) + 5 < ${ends:-9999999999}))
}
leave() {  # code: of this job; nothing follows
  event left ",\"code\":$1"
  if ((chain > 0 && $1 != 75 && $1 != 70)); then printf '%s\n' "$1" > "$run/slurm/chain-over"; fi
  exit "$1"
}
again() {  # why
  trap '' TERM USR1
  if ((chain > 0)); then event requeue ",\"why\":\"$1\""; say "$1; the next job of the chain goes on"; exit 75; fi
  if taken_back; then say "$1; Slurm ends the job, which does not come back by itself. Next: sbatch $root/slurm/job.sh"; exit 75; fi
  event requeue ",\"why\":\"$1\""
  say "$1; it comes back"
  local pause answer
  for pause in 5 10 20 40 80 160; do  # a controller may be away for some minutes
    if answer=$(scontrol requeue "$SLURM_JOB_ID" 2>&1); then sleep 600; fi  # ended by Slurm meanwhile
    if [[ -n $answer ]]; then say "$answer"; fi
    if [[ $answer == *disabled* || $answer == *denied* ]]; then break; fi
    sleep "$pause"
  done
  say "Slurm does not requeue here. Next: sbatch $root/slurm/job.sh, or launch/slurm --chain"
  exit 75
}

say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on ${SLURM_JOB_NODELIST:-?}"
event job ",\"nodes\":\"${SLURM_JOB_NODELIST:-}\",\"restart\":${SLURM_RESTART_COUNT:-0}"
if ((chain > 0)) && [[ -e $run/slurm/chain-over ]]; then
  say "a job of this chain has ended it with code $(< "$run/slurm/chain-over")"
  exit "$(< "$run/slurm/chain-over")"
fi

if [[ -n $launcher ]]; then why="as asked"
elif srun --mpi=list 2>&1 | grep -q pmix; then launcher=srun why="this Slurm has PMIx"
elif command -v mpirun > /dev/null; then launcher=mpirun why="this Slurm has no PMIx"
else say "neither srun with PMIx nor mpirun is here. Next: launch/slurm --setup FILE with the site's module load"; leave 76
fi
# Ranks are bound to cores where a host has one for each; a device is chosen by the rank's number on its host.
cores=$(($(nproc) / ${SLURM_NTASKS_PER_NODE:-1}))
if [[ $launcher == srun ]]; then
  launch=(srun --mpi=pmix --kill-on-bad-exit=0 --unbuffered --cpu-bind=$( ((cores > 0)) && echo cores || echo none))
else
  launch=(mpirun --quiet -n "$SLURM_NTASKS" --mca odls_base_sigkill_timeout 60)
  if ((cores > 0)); then launch+=(--map-by "ppr:$SLURM_NTASKS_PER_NODE:node:PE=$cores" --bind-to core); else launch+=(--oversubscribe --bind-to none); fi
fi
say "$launcher, $why; ${cores} cores for each rank of a host"

# What Slurm says to this shell goes to the ranks as "save and stop".
child=
told=
trap 'told=true; [[ -z $child ]] || kill -USR1 "$child" 2> /dev/null' USR1 TERM
ranks() {  # words of the program: runs it on all ranks; its exit code in $code, as the run's events have it
  local before
  before=$(wc -l 2> /dev/null < "$run/events.jsonl" || echo 0)
  "${launch[@]}" "$program" "$@" &
  child=$!
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2> /dev/null || break
  done
  child=
  # Launchers lose codes: the first that a rank has left counts.
  local noted
  noted=$(tail -n "+$((before + 1))" "$run/events.jsonl" | grep '"event":"exit"' | head -n 1 | grep -o '"code":[0-9]*' | cut -d : -f 2)
  code=${noted:-$code}
}

ends=$(squeue -h -j "$SLURM_JOB_ID" -o %e)  # N/A without a limit; nothing where the controller is away
ends=$([[ $ends == *T* ]] && date -d "$ends" +%s)
configuration=(--config "$root/slurm/config.conf" "${options[@]}")
ranks preflight "${configuration[@]}" --ranks "$SLURM_NTASKS" --bad-hosts "$run/slurm/bad-hosts"
if ((code == 70)) && [[ -s $run/slurm/bad-hosts ]]; then
  cat "$run/slurm/bad-hosts" >> "$run/slurm/excluded-hosts"  # those of earlier looks too
  bad=$(sort -u "$run/slurm/excluded-hosts" | paste -s -d ,)
  say "unfit: $bad"
  event unfit ",\"hosts\":\"$bad\""
  if ((chain == 0)) && following=$(sbatch --parsable --exclude="$bad" --dependency="afterany:$SLURM_JOB_ID" \
    ${SLURM_ARRAY_TASK_ID:+--array="$SLURM_ARRAY_TASK_ID"} "$root/slurm/job.sh"); then
    following=${following%%;*}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
    say "job $following goes on without $bad"
    event left ',"code":70'
    name=$following event queued ",\"why\":\"without $bad, unfit\""
    exit 70
  fi
  again "an unfit host"
elif [[ -n $told ]]; then
  again "stopped before it began"
elif ((code != 0)); then
  say "the look at the hosts ended with code $code"
else
  ranks train "${configuration[@]}" ${ends:+--end-time "$ends"}
fi

case $code in
  0) say "done"; rm -f "$run/slurm/crashes"; leave 0 ;;
  75) rm -f "$run/slurm/crashes"; again "saved and stopped" ;;
  72 | 73 | 74 | 76 | 93 | 126 | 127) say "code $code: not to be repeated as it is. Next: $program status $run"; leave "$code" ;;
esac
step=$(newest_step) crashes=0 at=
if [[ -e $run/slurm/crashes ]]; then { read -r crashes; read -r at; } < "$run/slurm/crashes"; fi
if [[ $step == "$at" ]]; then crashes=$((crashes + 1)); else crashes=1; fi
printf '%s\n%s\n' "$crashes" "$step" > "$run/slurm/crashes"
if ((crashes >= most_crashes)); then
  say "crashed $crashes times without a newer step, the last time with code $code: it does not come back. Next: $program status $run"
  event exit ",\"code\":93,\"error\":\"crashed $crashes times without a newer step, the last time with code $code\""
  leave 93
fi
again "crash $crashes of at most $most_crashes without a newer step, code $code"
