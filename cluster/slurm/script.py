"""The batch script of an attempt: what sbatch reads and what a person can read, submit and change.

Run with Slurm 22.05.
"""

import hashlib
import math
import os
import shlex
from pathlib import Path

from stagebench.cluster.slurm.follow import FAILED
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.engine_messages import FILE
from stagebench.suite.contracts.launcher import Request, sidecar_name
from stagebench.suite.errors import Unavailable

SETTING = "STAGEBENCH_SBATCH"  # more options of sbatch: "--partition=gpu --account=me"
# Our options, and those of a person that contradict them.
RIVALS = {
    "--mem": ("--mem-per-cpu", "--mem-per-gpu"),
    "--exclusive": ("--oversubscribe", "--share", "-s"),
    "--gpus-per-node": ("--gres", "--gpus", "-G", "--gpus-per-task", "--gpus-per-socket"),
}
NAME, LOG, MARK = "job.sbatch", "slurm.log", "slurm.mark"
MARGIN = 120.0  # seconds beyond the case's own limit: Slurm ends it only if the watchdog cannot

# Every engine's plug-in has other variables for a rank's numbers (pmi2 none for the local one): ours go first.
# Without memory cgroups Slurm does not notice that a node's kernel killed a rank to free memory. The kernel's count
# shows it (stagebench.suite.contracts.engine_messages.OomKills). The shell ends by the signal that ended the rank: srun
# names it. Where Slurm knows a step's processes by their parents (proctrack/linuxproc) and ends a step while it starts,
# it kills this shell only and loses the rank: so the kernel ends the rank with its shell. The inner shell looks whether
# the outer one died before the kernel was asked. A step that is ended gets SIGTERM, shell and rank alike: the shell
# waits for its rank, which may have been killed a moment before, and srun names that.
NUMBERS = f"""\
numbers='export STAGEBENCH_RANK=$SLURM_PROCID STAGEBENCH_WORLD=$SLURM_NTASKS STAGEBENCH_LOCAL_RANK=$SLURM_LOCALID
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
kills() {{ sed -n "s/^oom_kill //p" /proc/vmstat; }}
before=$(kills)
if setpriv --pdeathsig KILL true 2>/dev/null; then
    set -- setpriv --pdeathsig KILL bash -c "test \\$PPID = \\$0 && exec \\"\\$@\\"" $$ "$@"
fi
trap : TERM
"$@"
code=$? more=$(($(kills) - before))
if test $more -gt 0; then
    printf "{{\\"type\\": \\"oom kills\\", \\"host\\": \\"%s\\", \\"processes\\": %d}}\\n" "$(uname -n)" $more >>{FILE}
fi
if test $code -gt 128; then trap - TERM; ulimit -c 0; kill -$((code - 128)) $$; fi
exit $code'
"""
# The trap at the shell's end is set again, with more to do.
BESIDE = f"""\
trap 'exit 1' TERM
trap 'echo ended >{MARK}; kill $(jobs -p) 2>/dev/null' EXIT
beside() {{  # LOG NAME COMMAND...
    "${{@:3}}" >"$1" 2>&1 &
    trap "kill $!; exit" TERM
    wait $! && return
    echo "{FAILED}$2 ended with exit code $?; its last lines: $(tail -n 3 "$1" | paste -sd "|")"
    kill $$
}}
"""
ADDRESS = r"""$(scontrol show node --oneliner "$%s" | sed 's/.* NodeAddr=\([^ ]*\).*/\1/')"""
OTHER = """$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vx "$SLURMD_NODENAME" | head -n 1)"""
OWN = (  # as another node sees it; nothing is sent
    "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], 9)); "
    "print(s.getsockname()[0])"
)
PORT = 'import socket, sys; s = socket.socket(); s.bind(("", int(sys.argv[1]))); print(s.getsockname()[1])'


def resources(placement: Placement) -> list[str]:
    """Return sbatch's options for a placement."""
    options = [
        f"--nodes={placement.nodes}",
        f"--ntasks-per-node={placement.ranks_per_node}",
        f"--cpus-per-task={cores(placement)}",
        # Who measures wants the nodes alone, and all of their memory.
        "--exclusive",
        "--mem=0",
    ]
    if placement.device != "cpu":  # of the node, not of the task: a rank picks its own by its local number
        options.append(f"--gpus-per-node={placement.devices_per_node}")
    if placement.hosts:
        options.append(f"--nodelist={','.join(placement.hosts)}")
    return options


def with_theirs(options: list[str]) -> list[str]:
    """Return our options without those that STAGEBENCH_SBATCH replaces or contradicts, and its own after them.

    One that ends with "=", such as "--exclusive=", only withdraws ours.
    """
    theirs = extra()
    names = {option.partition("=")[0] for option in theirs}
    ours = [(option, option.partition("=")[0]) for option in options]
    kept = [option for option, name in ours if names.isdisjoint((name, *RIVALS.get(name, ())))]
    return kept + [option for option in theirs if not option.endswith("=")]


def extra() -> list[str]:
    """Return the options of STAGEBENCH_SBATCH; Unavailable if it cannot be read."""
    given = os.environ.get(SETTING, "")
    try:
        options = shlex.split(given)
    except ValueError as error:
        raise Unavailable(
            f"{SETTING} is {given!r}: {error}; write options of sbatch as a shell would read them"
        ) from error
    wrong = [option for option in options if not option.startswith("-")]
    if wrong:
        raise Unavailable(f"{SETTING} has {wrong[0]!r}, which is no option of sbatch; write --name=value as one word")
    return options


def cores(placement: Placement) -> int:
    """Return the number of cores with which a rank computes."""
    return placement.threads * placement.devices


def job_name(folder: Path) -> str:
    """Return the name of an attempt's job, always the same for its folder: a job can be found by it."""
    return f"stagebench-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def text(request: Request, pmi: str) -> str:
    """Return the whole script; `pmi` is for srun --mpi."""
    options = [
        f"--job-name={job_name(request.folder)}",
        f"--time={math.ceil((request.seconds + MARGIN) / 60)}",
        f"--output={LOG}",
        # A measurement that was interrupted is not continued: its lines must not precede a second one's.
        "--no-requeue",
        *resources(request.placement),
    ]
    options = with_theirs(options)
    for option in options:
        if not option.isprintable():  # after a line's end the rest would be a command
            raise Unavailable(f"{option!r} cannot stand in a batch script; correct it in `hosts` or {SETTING}")
    blocks = [
        "#!/bin/bash\n" + "".join(f"#SBATCH {shlex.quote(option)}\n" for option in options),
        # stagebench asks Slurm at once when this file changes, and else seldom.
        f"echo begun >{MARK}\ntrap 'echo ended >{MARK}' EXIT\n",
        variables(request),
        beside(request),
        ranks(request, pmi),
    ]
    return "\n".join(block for block in blocks if block)


def variables(request: Request) -> str:
    """Export the ranks' variables, and where they meet: on the first node, where this script runs."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(request.environ.items())]
    if request.port:
        python = shlex.quote(str(request.interpreter))
        if request.placement.nodes == 1:
            lines.append(f"MASTER_ADDR={ADDRESS % 'SLURMD_NODENAME'}\n")
        else:  # NodeAddr may be a name, and a node knows its own often as 127.0.1.1
            lines.append(f"other={OTHER}\nother={ADDRESS % 'other'}\n")
            lines.append(f'MASTER_ADDR=$({python} -c {shlex.quote(OWN)} "$other")\n')
        # A port that was free where stagebench runs is most often free here, too; 0 is any.
        lines.append(f"port={shlex.quote(PORT)}\n")
        lines.append(f'MASTER_PORT=$({python} -c "$port" {request.port} 2>/dev/null || {python} -c "$port" 0)\n')
        lines.append("export MASTER_ADDR MASTER_PORT\n")
    return "".join(lines)


def beside(request: Request) -> str:
    """Start the sidecars, on the first node: one that fails ends the job, and all end with it."""
    if not request.sidecars:
        return ""
    lines = [BESIDE]
    for number, tokens in enumerate(request.sidecars, 1):
        lines.append(f"beside launcher-{number}.log {shlex.join((sidecar_name(tokens), *tokens))} &\n")
    return "".join(lines)


def ranks(request: Request, pmi: str) -> str:
    """Start the ranks, with all cores of their nodes: readers and communication have threads, too.

    Given a number of cores, by the option or one of the variables, srun keeps a step to them (--exact). The worker
    binds itself, the same way under every launcher.
    """
    line = (
        "unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_EXACT\n"
        f"srun --mpi={shlex.quote(pmi)} --cpu-bind=none --kill-on-bad-exit=1 \\\n"
        f'    bash -c "$numbers" rank \\\n'
        f"    {shlex.join(request.command)}"
    )
    # `wait` is left when a sidecar's failure signals this shell; for a plain srun bash would wait.
    return f"{NUMBERS}{line} &\nwait $!\n" if request.sidecars else f"{NUMBERS}{line}\n"
