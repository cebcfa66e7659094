#!/usr/bin/env bash
# on_a_card.py for a GPU machine without a network: packed here, carried there, run there.
#
#     bash tests/validation/carried.sh pack KIT                  # HEAD's tree, and wheels that such a machine lacks
#     bash KIT/carried.sh run OUT MINUTES [options of on_a_card.py]
#
# The machine has Python 3.12 with PyTorch, JAX and mpi4py. OUT takes results.tar.gz after every step, and the record.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
case "$1" in
pack)
    kit="$(mkdir -p "$2" && cd "$2" && pwd)"
    cd "$here/../.."
    git archive --format=tar.gz -o "$kit/tree.tgz" HEAD
    git rev-parse HEAD > "$kit/commit"
    rm -f "$kit"/*.whl
    python3 -m pip wheel -q --no-deps -w "$kit" .
    python3 -m pip download -q --only-binary=:all: --python-version 3.12 --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        -d "$kit" pydantic lmdb==3.0.0
    cp tests/validation/carried.sh "$kit"
    du -sh "$kit"
    ;;
run)
    out="$(mkdir -p "$2" && cd "$2" && pwd)" minutes="$3" work="${TMPDIR:-/tmp}/carried"
    shift 3
    if [ ! -d "$work/site" ]; then
        python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$here"/*.whl
        # Workers start without PYTHONPATH: they find lmdb through this.
        echo "$work/site" > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz-carried.pth"
    fi
    # A second call on the same machine keeps the tree, and in it the record of what is done.
    if ! cmp -s "$here/commit" "$work/commit"; then
        rm -rf "$work/tree" && mkdir -p "$work/tree" "$work/out"
        tar xzf "$here/tree.tgz" -C "$work/tree" && cp "$here/commit" "$work/commit"
    fi
    cd "$work/tree"
    export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD:$PWD/tests/conformance:$work/site"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    python3 tests/validation/on_a_card.py "$work/out" --minutes "$minutes" --pack "$out/results.tar.gz" "$@" || true
    cp tests/validation/on_a_card.json "$out"
    ;;
esac
