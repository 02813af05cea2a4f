# shellcheck shell=bash
# The common part of the scripts beside this file: messages, and commands that are quiet unless they fail.
# Sourced, not run. Leaves the caller in the repository's root.

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
self=$(readlink -f "$0")  # before the change of folder: it may be a relative path
cd "$root" || exit

# A copy of the repository elsewhere finds in ccache what another one compiled, also with precompiled headers. Not where the path
# has a space: ccache leaves such paths as they are in the list of headers, so the other copy would compile at each build anew.
[[ $root = *[[:space:]]* ]] || export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root}
export CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}

say() { printf 'dtrun: %s\n' "$*" >&2; }

# The comment at the top of the script that runs is its help.
show_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "$self"; }

# quietly LOG COMMAND…: the output goes to LOG, and is shown (its last lines) only if the command fails.
quietly() {
  local log=$1 code=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null || code=$?
  [ "$code" -eq 0 ] && return 0
  tail -n 80 "$log" >&2
  say "failed with exit code $code: $* (all of its output: $log)"
  return "$code"
}

# On a terminal one line that is rewritten, elsewhere nothing: ninja's "[3/40]" lines from standard input.
show_progress() {
  local what=$1 line
  while IFS= read -r line; do
    [[ -t 2 && $line =~ ^\[([0-9]+/[0-9]+)\] ]] && printf '\r\033[Kdtrun: building %s %s' "$what" "${BASH_REMATCH[1]}" >&2
  done
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

# build PRESET [TARGET…]: configures if that was not done yet with the same `configure_options`, and builds the targets
# (default: the preset's). Kernels for GPUs are a seventh of the whole: they come where this machine has one, or with
# gpus=ON, and then stay.
configure_options=()
gpus=HERE
build() {
  local preset=$1 log=build/$1/build.log code=0
  local cache=build/$1/CMakeCache.txt given=build/$1/configure_options options=("${configure_options[@]}")
  shift
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  if [ "$gpus" != ON ] && [ "$preset" = release ] && ! grep -qs '^DTRUN_GPUS:.*=ON$' "$cache"; then
    options+=("-DDTRUN_GPUS=$gpus")
  fi
  # CMake runs again by itself when a CMakeLists.txt changes, but not when the presets do.
  if ! [ "build/$preset/build.ninja" -nt CMakePresets.json ] || [ "$(cat "$given" 2>/dev/null)" != "${options[*]}" ]; then
    say "configuring build/$preset"
    quietly "build/$preset/configure.log" cmake --preset "$preset" "${options[@]}" || return
    printf '%s' "${options[*]}" >"$given"
  fi
  cmake --build --preset "$preset" "${targets[@]}" 2>&1 </dev/null | tee "$log" | show_progress "$preset" || code=$?
  [ "$code" -eq 0 ] && return 0
  grep -vE '^\[[0-9]+/[0-9]+\] ' "$log" | tail -n 80 >&2
  say "the build of $preset failed (all of its output: $log)"
  return "$code"
}

# A copy without git's folder (a release's tarball) has no changes.
is_checkout() { [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$root" ]; }

# The commit that changes are counted from, as "COMMIT NAME": where the branch left main, or on main itself, where others have
# looked at what is older, the newest one that is a day older than the last. Nothing where there is none.
base_of_changes() {
  local name base head
  is_checkout || return 0
  head=$(git rev-parse -q --verify HEAD) || return 0
  for name in origin/main main; do
    base=$(git merge-base HEAD "$name" 2>/dev/null) || continue
    [ "$base" = "$head" ] || { echo "$base $name"; return; }
  done
  base=$(git rev-list -1 --before=$(($(git show -s --format=%ct HEAD) - 86400)) HEAD)
  [ -z "$base" ] || echo "$base yesterday"
}

# Files that differ from a commit, new ones among them: changed_since COMMIT
changed_since() { { git diff --name-only "$1"; git ls-files -o --exclude-standard; } | sort -u; }
