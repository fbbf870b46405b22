# A job of launch/slurm: checks its hosts, trains, and requeues itself or not, depending on the exit code.
set +efC +o pipefail -u; trap - ERR  # undo what the lines of --setup may have set
unset "${!SQUEUE_@}" "${!SINFO_@}" CDPATH  # the user's filters would hide jobs and hosts
export SLURM_EXPORT_ENV=ALL  # ranks get what --setup has loaded, even if jobs start with an empty environment
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}  # Slurm does not tell MPI whether ranks share cores
run=$root options=()
if $seeds; then
  run=$root/seed-$SLURM_ARRAY_TASK_ID
  options=(--train.seed "$SLURM_ARRAY_TASK_ID" --output.directory "$run")
fi
# In the last task of an array, SLURM_JOB_ID is the number of the whole array, so Slurm's commands get this name.
name=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
resubmit="sbatch ${SLURM_ARRAY_TASK_ID:+--array=$SLURM_ARRAY_TASK_ID }$root/slurm/job.sh"
place=${1:-0}  # place in its chain; 0: not in a chain, as when submitted by hand

say() { printf '%s job %s: %s\n' "$(date -u +%FT%TZ)" "$name" "$1"; }
event() {  # name [further JSON fields]: appends a line to the run's events; an incomplete last line gets its line break first
  if [[ -s $run/events.jsonl ]] && (($(tail -c 1 "$run/events.jsonl" | wc -l) == 0)); then echo >> "$run/events.jsonl"; fi
  printf '{"time":"%s","host":"%s","event":"%s","job":"%s"%s}\n' "$(date -u +%FT%T.000Z)" "$(hostname)" "$1" "$name" "${2:-}" >> "$run/events.jsonl"
}
newest_step() { find "$run/checkpoints" -path '*/step-*/manifest.json' 2> /dev/null | sort | tail -n 1; }
# True if Slurm ends the job before its time limit: somebody cancelled it, or Slurm preempts or requeues it.
ended_by_slurm() {
  local state
  state=$(squeue -h -j "$name" -o %T) || return 1  # the controller does not answer, so it ends nothing
  [[ -n $state && $state != RUNNING ]] && (($(date +%s) + 5 < ${ends:-9999999999}))
}
requeued_by_slurm() { [[ $(scontrol show job -o "$name") =~ Restarts=([0-9]+) ]] && ((BASH_REMATCH[1] > ${SLURM_RESTART_COUNT:-0})); }
has_next_in_chain() { squeue -h -u "$UID" -t PENDING -o %E | grep -Eq "after[a-z]*:$SLURM_JOB_ID([^0-9]|\$)"; }
# Slurm's names of the hosts in a file: a host may call itself node1.site.org, or something else, where Slurm says node1.
nodes_of() {
  awk '{ split($1, part, "."); if (NR == FNR) bad[part[1]] = $1; else if (part[1] in bad) { print $2; named[part[1]] } }
    END { for (host in bad) if (!(host in named)) print bad[host] }' "$1" <(sinfo -h -N -n "$SLURM_JOB_NODELIST" -o '%n %N')
}
submit() {  # arguments of sbatch; the new job does not inherit this job's SLURM_ variables
  local variable without=()
  for variable in "${!SLURM_@}"; do
    if [[ " $kept " != *" $variable "* ]]; then without+=(-u "$variable"); fi
  done
  env "${without[@]}" sbatch "$@"
}
crashes=
count_crash() {  # sets $crashes: the number of crashes without a newer step
  local step at=
  step=$(newest_step)
  if [[ -e $run/slurm/crashes ]]; then { read -r crashes; read -r at; } < "$run/slurm/crashes"; fi
  if [[ $crashes =~ ^[0-9]+$ && $step == "$at" ]]; then crashes=$((crashes + 1)); else crashes=1; fi
  printf '%s\n%s\n' "$crashes" "$step" > "$run/slurm/crashes" || crashes=$most_crashes  # without a count it would be requeued forever
}
leave() {  # exit code; ends this job, which is not requeued
  event left ",\"code\":$1"
  if ((place > 0 && $1 != 75 && $1 != 70)); then printf '%s\n' "$1" > "$run/slurm/chain-over"; fi
  exit "$1"
}
requeue() {  # why
  trap '' TERM INT HUP XCPU USR1
  if ((chain > 0)); then
    if has_next_in_chain; then event requeue ",\"why\":\"$1\""; say "$1; the next job of the chain continues"; exit 75; fi
    say "$1; no job of the chain is left. Next: launch/slurm --chain, or sbatch $root/slurm/job.sh"
    leave 75
  fi
  if ended_by_slurm; then
    if requeued_by_slurm; then event requeue ",\"why\":\"$1\""; say "$1; Slurm requeues it by itself"; exit 75; fi
    say "$1; Slurm ends the job and does not requeue it. Next: $resubmit"
    leave 75
  fi
  event requeue ",\"why\":\"$1\""
  say "$1; requeueing"
  local pause answer
  for pause in 5 10 20 40 80 160; do  # the controller may be down for some minutes
    if answer=$(scontrol requeue "$name" 2>&1); then exit 75; fi  # leave at once: otherwise the nodes stay occupied for Slurm's KillWait
    if [[ -n $answer ]]; then say "$answer"; fi
    if [[ $answer == *disabled* || $answer == *denied* ]]; then break; fi
    sleep "$pause"
  done
  say "Slurm refuses to requeue. Next: $resubmit, or launch/slurm --chain"
  leave 75
}

give_up() {  # why
  say "$1: not requeued. Next: $program status $run"
  event exit ",\"code\":93,\"error\":\"$1\""
  leave 93
}
stopped_early() {  # [how]; counts as a crash unless it is cancelled: a time limit that is too short stays too short
  local how=${1:-stopped before it began}
  if ! ended_by_slurm; then
    count_crash
    if ((crashes >= most_crashes)); then give_up "no newer step in $crashes starts; the last one $how"; fi
  fi
  requeue "$how"
}

# If nothing can be written, crashes cannot be counted, and the job would be requeued forever.
if ! { mkdir -p "$run/slurm" && echo > "$run/slurm/bad-hosts" && rm "$run/slurm/bad-hosts"; }; then
  say "cannot write to $run/slurm: not requeued. Next: df $run; ls -ld $run/slurm"
  exit 76
fi
say "start $((${SLURM_RESTART_COUNT:-0} + 1)) on ${SLURM_JOB_NODELIST:-?}"
event job ",\"nodes\":\"${SLURM_JOB_NODELIST:-}\",\"restart\":${SLURM_RESTART_COUNT:-0}"
if ((place > 1)) && [[ -e $run/slurm/chain-over ]]; then
  say "an earlier job ended this chain with code $(< "$run/slurm/chain-over")"
  exit "$(< "$run/slurm/chain-over")"
fi

# The end is N/A without a limit, and empty if the controller does not answer. For a job that is being cancelled it is now, not a limit.
read -r state ends < <(SLURM_TIME_FORMAT=standard squeue -h -j "$name" -o '%T %e')
ends=$([[ ${state:-COMPLETING} != COMPLETING && $ends == *T* ]] && date -d "$ends" +%s)
if [[ -n $stop_requested ]]; then stopped_early; fi

if [[ -n $launcher ]]; then why="as asked"
elif srun --mpi=list 2>&1 | grep -q pmix; then launcher=srun why="this Slurm has PMIx"
elif command -v mpirun > /dev/null; then launcher=mpirun why="this Slurm has no PMIx"
else say "found neither srun with PMIx nor mpirun. Next: launch/slurm --setup FILE with the site's module load"; leave 76
fi
# Ranks are bound to cores if a host has at least one core for each; a rank's device is chosen by its number on its host.
# Counts the cores that the job may use, ignoring OMP_NUM_THREADS; two threads of a core count as one.
processors=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
share=$(lscpu -p=CORE,SOCKET 2> /dev/null | LC_ALL=C awk '!/^#/ { all++; if (!seen[$0]++) cores++ } END { print (all ? cores / all : 1) }')
cores=$(LC_ALL=C awk "BEGIN { print int($processors * $share / ${SLURM_NTASKS_PER_NODE:-1} + 1e-6) }")
if [[ $launcher == srun ]]; then
  launch=(srun --mpi=pmix --kill-on-bad-exit=0 --unbuffered "--cpu-bind=$( ((cores > 0)) && echo cores || echo none)"
    ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"})  # since Slurm 22.05 srun does not take it from the job
else
  # mpirun must not get the signals that a batch system sends to every process: it would kill the ranks, or exit at once on the
  # second one. If Python is missing, or daemons on other hosts get signals, the time-out leaves the ranks time to save: Open MPI
  # sleeps that long before it sends TERM, and again before KILL. A rank that exits with 75 must cause neither.
  if command -v python3 > /dev/null; then
    launch=(python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU])
os.execvp(sys.argv[1], sys.argv[1:])')
  fi
  launch+=(mpirun --quiet -n "$SLURM_NTASKS" --mca odls_base_sigkill_timeout 60 --mca orte_abort_on_non_zero_status 0)
  if ((cores > 0)); then launch+=(--map-by "ppr:$SLURM_NTASKS_PER_NODE:node:PE=$cores" --bind-to core); else launch+=(--oversubscribe --bind-to none); fi
fi
say "$launcher, $why; $cores cores per rank"

# Signals of Slurm to this shell are passed to the ranks as "save and stop".
child=
trap 'stop_requested=true; [[ -z $child ]] || kill -USR1 "$child" 2> /dev/null' USR1 TERM INT HUP XCPU
lines_of_events() { wc -l 2> /dev/null < "$run/events.jsonl" || echo 0; }
ranks() {  # arguments of the program: runs it on all ranks; sets $code to its exit code, as in the run's events
  local before
  before=$(lines_of_events)
  run_ranks "$@"
  # Under srun, Open MPI sometimes loses a rank while ranks connect (open-mpi/ompi#12495: a message before its MPI_Init is over).
  if [[ $code =~ ^(134|135|136|139)$ && -z $stop_requested ]] && (($(lines_of_events) == before)); then
    say "a rank crashed before any rank had started, code $code: starting once more"
    rm -f "$run/slurm/bad-hosts"  # existing names are not replaced
    run_ranks "$@"
  fi
  # Launchers lose codes, so the first code that a rank has recorded counts.
  recorded=$(tail -n "+$((before + 1))" "$run/events.jsonl" | grep '"event":"exit"' | head -n 1 | grep -o '"code":[0-9]*' | cut -d : -f 2)
  code=${recorded:-$code}
  if [[ -n $stop_requested && $code =~ ^(129|130|138|143|152)$ ]]; then code=75; fi  # the signal ended the launcher, or ranks, before they could handle it
}
run_ranks() {  # arguments of the program; sets $code to the launcher's exit code
  "${launch[@]}" "$program" "$@" &
  child=$!
  if [[ -n $stop_requested ]]; then kill -USR1 "$child"; fi  # the signal arrived while it was being started
  local more=10  # srun loses signals while it starts
  while :; do
    while [[ -n $stop_requested ]] && ((more-- > 0)); do sleep 1; kill -USR1 "$child" 2> /dev/null || break; done
    wait "$child"
    code=$?
    kill -0 "$child" 2> /dev/null || break
  done
  child=
}

resumed=$(newest_step)
configuration=(--config "$root/slurm/config.conf" "${options[@]}")
ranks preflight "${configuration[@]}" --ranks "$SLURM_NTASKS" --bad-hosts "$run/slurm/bad-hosts"
if ((code == 70 && SLURM_JOB_NUM_NODES > 1)) && (($(wc -l < "$run/slurm/bad-hosts") == SLURM_JOB_NUM_NODES)); then
  say "all hosts are unfit: the cause is not a host but the run, such as a full disk"
  code=76
elif ((code == 70)) && [[ -s $run/slurm/bad-hosts ]]; then
  nodes_of "$run/slurm/bad-hosts" >> "$run/slurm/excluded-hosts"  # in addition to those of earlier checks
  bad=$(sort -u "$run/slurm/excluded-hosts" | paste -s -d ,)
  say "unfit: $bad"
  event unfit ",\"hosts\":\"$bad\""
  count_crash  # one host after another may be unfit, without end
  if ((chain == 0 && crashes < most_crashes)) && following=$(submit --parsable --exclude="$bad" --dependency="afterany:$name" \
    ${SLURM_ARRAY_TASK_ID:+--array="$SLURM_ARRAY_TASK_ID"} "$root/slurm/job.sh"); then
    following=${following%%;*}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
    say "job $following continues without $bad"
    event left ',"code":70'
    name=$following event queued ",\"why\":\"without $bad, unfit\""
    exit 70
  fi
elif [[ -n $stop_requested ]]; then
  stopped_early
elif ((code != 0)); then
  say "the check of the hosts ended with code $code"
else
  ranks train "${configuration[@]}" ${ends:+--end-time "$ends"}
fi

case $code in
  0) say "done"; rm -f "$run/slurm/crashes"; leave 0 ;;
  75)
    if [[ -z $recorded ]]; then stopped_early; fi
    if [[ $(newest_step) == "$resumed" ]]; then stopped_early "stopped in an evaluation"; fi
    rm -f "$run/slurm/crashes"
    requeue "saved and stopped"
    ;;
  72 | 73 | 74 | 76 | 93 | 126 | 127) say "code $code: not requeued. Next: $program status $run"; leave "$code" ;;
esac
if [[ -z $crashes ]]; then count_crash; fi
if ((crashes >= most_crashes)); then give_up "crashed $crashes times without a newer step, the last time with code $code"; fi
requeue "crash $crashes of at most $most_crashes without a newer step, code $code"
