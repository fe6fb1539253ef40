# Sourced by the other scripts. `ready_environment EXTRAS` makes a virtual environment with the project and the named
# extras ("" for none) installed, unless it is there already, and sets PYTHON to its interpreter.
#
# ODC_VENV    where it is                     (default: .venv in the repository)
# ODC_PYTHON  interpreter to make it with     (default: the first of python3, python3.13, .12, .11 that is new enough)

unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

# An interpreter that runs, is new enough, and can make virtual environments with pip in them.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() {
    BASE_PYTHON=
    for candidate in ${ODC_PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if new_enough "$candidate"; then
            BASE_PYTHON=${BASE_PYTHON:-$candidate}
            if makes_venvs "$candidate"; then
                BASE_PYTHON=$candidate
                return 0
            fi
        fi
    done
    return 1
}

# install_packages PACKAGE...: install packages of Debian; fail without the permission to do so.
install_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "installing $*"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >&2
}

require_python() {
    find_python && return 0
    install_packages python3 python3-venv && find_python && return 0
    if [ -n "$BASE_PYTHON" ]; then
        say "error: $BASE_PYTHON cannot make virtual environments; install its venv module (Debian, Ubuntu: apt install python3-venv)"
    else
        say "error: needs Python 3.11 or newer; install it, or name an interpreter with ODC_PYTHON=..."
    fi
    exit 1
}

ready_environment() {
    VENV=${ODC_VENV:-$ROOT/.venv}
    PYTHON=$VENV/bin/python
    # A checkout that moved, or whose requirements changed, is installed again.
    wanted="$ROOT $(cksum <"$ROOT/pyproject.toml")"
    stamp=$VENV/odc-installed${1:+-$1}
    if new_enough "$PYTHON" && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    if ! { new_enough "$PYTHON" && "$PYTHON" -m pip --version >/dev/null 2>&1; }; then  # none, or half made
        require_python
        say "making $VENV with $BASE_PYTHON"
        "$BASE_PYTHON" -m venv --clear "$VENV"
    fi
    say "installing the project${1:+ with extras $1} into $VENV: takes about a minute, depending on the network"
    # The first process that imports a module keeps its bytecode; compiling all that is installed would take longer.
    "$PYTHON" -m pip install --progress-bar off --disable-pip-version-check --no-compile --editable "$ROOT${1:+[$1]}" >&2
    printf '%s' "$wanted" >"$stamp"
}

# Pages are tested in a real browser, objects for other processors under an emulator. Without permission to install
# them, those tests are skipped and counted.
ready_programs() {
    missing=
    command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || missing="chromium"
    command -v qemu-arm >/dev/null 2>&1 || missing="$missing qemu-user"
    # shellcheck disable=SC2086
    [ -z "$missing" ] || install_packages $missing || say "cannot install $missing here: the tests that need it are skipped"
}
