#!/usr/bin/env bash
# A rank that is killed, a rank that is stopped, an mpirun that is killed: each ends the whole job
# within seconds and leaves neither processes nor shared memory.
set -uo pipefail
ranks=4
failed=0
fail() {
  echo "FAILED: $case: $1; the job said:"
  cat "$dir/log"
  failed=1
}

# Starts the job; sets mpirun (its pid) and pids (of the ranks).
start() {
  case=$1
  dir=$(mktemp -d "$TEST_TMPDIR/f.XXXXXX")
  mkdir "$dir/shm" "$dir/tmp"
  # Segments where no other job's are.
  OMPI_MCA_btl_vader_backing_directory=$dir/shm OMPI_MCA_btl_sm_backing_directory=$dir/shm \
    MPIRUN_DIR=$dir/tmp tests/mpi/mpirun.sh $ranks parallel/comm/mpi/mpi_victim "$dir" \
    >"$dir/log" 2>&1 </dev/null &
  mpirun=$!
  pids=()
  for ((rank = 0; rank < ranks; rank++)); do
    for ((i = 0; i < 300; i++)); do
      [[ -s $dir/pid.$rank ]] && break
      kill -0 "$mpirun" 2>/dev/null || break
      sleep 0.1
    done
    if [[ ! -s $dir/pid.$rank ]]; then
      fail "rank $rank never worked"
      kill -9 "$mpirun" "${pids[@]}" 2>/dev/null
      exit 1
    fi
    pids+=("$(<"$dir/pid.$rank")")
  done
}

# ends PID...: all have gone within 5 s.
ends() {
  local pid
  for ((i = 0; i < 50; i++)); do
    for pid; do kill -0 "$pid" 2>/dev/null && break; done
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}

finish() {
  wait "$mpirun" 2>/dev/null
  status=$?
  [[ $status != 0 ]] || fail "mpirun ended with 0"
  ends "${pids[@]}" || fail "ranks are left: $(ps -o pid=,stat=,args= -p "${pids[*]}")"
  [[ -z $(ls -A "$dir/shm") ]] || fail "left in shared memory: $(ls -A "$dir/shm")"
  kill -9 "${pids[@]}" 2>/dev/null
}

start 'a killed rank'
[[ -z $(ls -A "$dir/shm") ]] || fail "segments still have names: $(ls -A "$dir/shm")"
kill -9 "${pids[2]}"
ends "$mpirun" || fail 'mpirun goes on'
finish

start 'a stopped rank'
kill -STOP "${pids[2]}"
ends "$mpirun" || fail 'mpirun goes on'
finish
# It may have stopped inside of one, and others then behind it.
grep -Eq "(rank 2|ranks ([0-9]+, )*2(, [0-9]+)*) never entered all-reduce [0-9]+ of 'world' within 1s" "$dir/log" ||
  grep -Eq "rank 2 entered all-reduce [0-9]+ of 'world' but did not finish it within 1s" "$dir/log" || fail 'nobody named rank 2'

start 'a killed mpirun'
kill -9 "$mpirun"
ends "${pids[@]}" || fail 'ranks go on'
finish

exit $failed
