#!/usr/bin/env bash
# The test command.
#
#   ./test.sh        what CI runs: format, vet, staticcheck, architecture, unit
#                    tests with and without the invariants tag, the race
#                    detector, fuzz seeds, and the quick integration tests
#                    against kbroker. Under 15 minutes on two cores.
#   ./test.sh full   the whole integration matrix: every case against Apache
#                    Kafka 3.9.2 (groups of KIP-848: 4.4.0), kbroker with its
#                    embedded store, and kbroker over ZooKeeper. About forty-five
#                    minutes.
#
#   ./test.sh fuzz D every fuzz target for the duration D each (as 10m), one after
#                    the other. A failing input is kept in the target's testdata.
#
# Needs Go and git. Whatever else is missing it installs from Debian's packages,
# as root or with sudo, or says in one line what is missing. Apache Kafka,
# ZooKeeper and the clients come from Maven, PyPI and npm into .cache/.
set -euo pipefail
cd "$(dirname "$0")"

readonly STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2

die() {
  printf 'test.sh: %s\n' "$*" >&2
  exit 1
}

# step NAME COMMAND... runs a command under a heading and says how long it took.
step() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" || die "$name failed"
  printf '== %s: %d s\n' "$name" $((SECONDS - began))
}

# need PROGRAM:PACKAGE[,PACKAGE...]... installs the packages of programs that are
# not there.
need() {
  local entry program missing=() packages=()
  for entry in "$@"; do
    program=${entry%%:*}
    if ! present "$program"; then
      missing+=("$program")
      IFS=, read -ra more <<<"${entry#*:}"
      packages+=("${more[@]}")
    fi
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]}. Install the packages ${packages[*]}, or run as root or with sudo"
    as=(sudo)
  fi
  command -v apt-get >/dev/null || die "missing: ${missing[*]}. On Debian they are the packages ${packages[*]}"
  printf 'installing %s\n' "${packages[*]}"
  "${as[@]}" apt-get update -qq
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
  for program in "${missing[@]}"; do
    present "$program" || die "missing: $program, although ${packages[*]} are installed"
  done
}

present() {
  case $1 in
    venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    # cgo, for the race detector: a compiler and the C library's headers.
    cgo) command -v gcc >/dev/null && printf '#include <stdlib.h>\n' | gcc -E - >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

command -v go >/dev/null || die "missing: go. Install Go $(sed -n 's/^go //p' go.mod) or newer"

gofmt_clean() {
  local bad
  bad=$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 --no-run-if-empty gofmt -l)
  [ -z "$bad" ] || { printf 'not formatted:\n%s\n' "$bad"; return 1; }
}

vet() {
  go vet ./... && go vet -tags invariants ./... && go vet -tags integration ./integration
}

staticcheck() {
  go run "$STATICCHECK" ./... && go run "$STATICCHECK" -tags integration ./integration
}

# The packages in which goroutines share something: those that import sync.
concurrent() {
  go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
    awk '/ sync( |$)| sync\/atomic( |$)| testing\/synctest( |$)/ {print $1}'
}

race() {
  # shellcheck disable=SC2046 # one word a package
  CGO_ENABLED=1 go test -race -timeout 8m $(concurrent)
}

# The seeds of every fuzz target, also those that unit tests leave out.
fuzz_seeds() {
  # shellcheck disable=SC2046 # one word a package
  go test -timeout 8m -run '^Fuzz' $(git grep -l --untracked '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
}

quick() {
  need java:default-jdk-headless javac:default-jdk-headless mvn:maven kcat:kcat strace:strace cgo:gcc,libc6-dev
  step "format" gofmt_clean
  step "vet" vet
  step "staticcheck" staticcheck
  step "architecture" go test ./internal/archtest
  step "unit tests" go test -timeout 8m ./...
  step "unit tests with invariants" go test -timeout 8m -tags invariants ./...
  step "race detector" race
  step "fuzz seeds" fuzz_seeds
  step "integration: kcat, franz-go, raw frames and Java against kbroker" \
    env KBROKER_SUBJECT=kbroker KBROKER_METADATA=embedded go test -count=1 -timeout 10m -tags integration -short ./integration
}

matrix() {
  need java:default-jdk-headless javac:default-jdk-headless mvn:maven kcat:kcat strace:strace \
    python3:python3 venv:python3-venv node:nodejs npm:npm
  local failed=()
  for subject in kafka:embedded kbroker:embedded kbroker:zookeeper; do
    printf '\n== matrix: %s, metadata %s\n' "${subject%:*}" "${subject#*:}"
    env KBROKER_SUBJECT="${subject%:*}" KBROKER_METADATA="${subject#*:}" \
      go test -count=1 -timeout 60m -tags integration ./integration || failed+=("$subject")
  done
  printf '\n== zkmeta against a real ZooKeeper\n'
  env KBROKER_TEST_KAFKA_LIBS="$PWD/.cache/integration/kafka-3.9.2" go test -count=1 -timeout 10m ./zkmeta/... || failed+=(zkmeta)
  [ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
}

# fuzz DURATION runs each target in turn; minimising is kept short, since it
# would take most of the time else.
fuzz() {
  local pkg target failed=()
  while read -r pkg target; do
    printf '\n== %s %s\n' "$pkg" "$target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 5x "$pkg" || failed+=("$pkg $target")
  done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' | while read -r file; do
      sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$file" | sed "s|^|./$(dirname "$file") |"
    done)
  [ ${#failed[@]} -eq 0 ] || die "failing inputs were found: ${failed[*]}"
}

case ${1-} in
  "") quick ;;
  full) matrix ;;
  fuzz) fuzz "${2:-1m}" ;;
  *) die "unknown argument $1; want none, full or fuzz" ;;
esac
printf '\nall passed in %d s\n' "$SECONDS"
