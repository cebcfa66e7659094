from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from stagebench.suite.contracts.adapter import Strategy
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.model_server import ModelServer
from stagebench.suite.data import locate
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import load, ready_made, resolve
from stagebench.suite.plan.model import SECTIONS, Block, Pass, ScaleBlock
from stagebench.suite.plan.model_servers import serving_of, unkept
from stagebench.suite.plan.read import TOP_KEYS
from stagebench.suite.plan.resolve import idle, measurable
from stagebench.suite.results.records import CaseEntry
from stagebench.suite.worker.case_parts import Sampling, Schedule, Serving, Training
from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.pass_kinds import KERNELS, LOADS, TRAIN, USUAL, USUAL_LOADS
from stagebench.workloads.networks import by_name

HEAD = 'name = "x"\n'


def stored_and_read(case: Case) -> Case:
    stored = CaseEntry(id=case.id, case=case).model_dump_json()
    return CaseEntry.model_validate_json(stored, strict=True).case


SINGLE = '[[cases]]\nadapter = "alpha"\nstrategy = "single"\nworkload = "mnist_small"\n'


# docs/stability.md promises these until the next major version; a new key gets its place here.
KEYS = {
    "plan": "name title most_cases defaults sampling training scale cases overrides",
    "cases": (
        "adapter strategy workload data batch scaling nodes ranks devices device threads launcher binding "
        "share_devices straggler memory_limit tuning precision optimiser clip_norm warmup_epochs decay lr "
        "readers data_mode format page_cache prefetch repeat augment on_error max_delay_ms bound_ms "
        "bound_share model_server workers arrivals address options seed time_limit silence_limit hosts passes "
        "knobs"
    ),
    "sampling": "warmup_steps warmup_limit steps seconds processes breakdowns quick",
    "training": "epochs held_out target patience",
    "scale": "divide_batch multiply_batch device keep sampling training",
}


def test_a_plan_has_the_keys_that_are_promised():
    tables = {"cases": Block, "scale": ScaleBlock, **SECTIONS}
    found = {name: set(model.model_fields) for name, model in tables.items()} | {"plan": set(TOP_KEYS)}
    assert found == {name: set(keys.split()) for name, keys in KEYS.items()}


def test_the_plan_model_names_the_same_things_as_a_case():
    assert get_args(Pass) == (*USUAL, KERNELS, TRAIN, *LOADS)
    assert SECTIONS["training"]().model_dump() == Training()._asdict()
    assert SECTIONS["sampling"]().model_dump() == Sampling()._asdict()


def test_a_case_is_resolved_to_the_last_value(cases, toys):
    (found,) = cases(SINGLE + "batch = 32\nknobs.bucket = 5\n")
    case = found.case
    assert (found.outcome, found.reason) == (None, "")
    assert case.lr == pytest.approx(0.01 * 32 / 64)  # mnist_small: 0.01 at 64
    assert case.knobs == {"format": "auto", "bucket": 5}
    assert case.graph_digest == toys.workloads["mnist_small"].graph().digest
    assert case.placement.launcher == "local"
    assert case.passes == USUAL
    assert stored_and_read(case) == case


def test_a_workload_s_name_may_say_its_context(cases, toys):
    found = [r.case for r in cases(SINGLE.replace('"mnist_small"', '["gpt_char", "gpt_char@16", "gpt_char@32"]'))]
    assert [case.workload for case in found] == ["gpt_char", "gpt_char@16", "gpt_char@32"]
    assert [case.graph_digest for case in found] == [toys.workloads[case.workload].graph().digest for case in found]
    assert len({case.id for case in found} | {case.graph_digest for case in found}) == 6
    assert stored_and_read(found[1]) == found[1]
    (sized,) = cases(SINGLE.replace('"mnist_small"', '"gpt_char@16"') + 'batch = { "gpt_char@16" = 3 }\n')
    assert sized.case.batch == 3


def test_lists_are_swept_in_the_order_written_and_defaults_fill_every_block(cases):
    found = cases(
        '[[cases]]\nadapter = "alpha"\nstrategy = "ddp"\nworkload = ["alexnet", "mnist_small"]\nranks = [2, 1]\n'
        'knobs.format = ["last", "auto"]\n'
    )
    told = [(r.case.workload, r.case.placement.ranks, r.case.knobs["format"]) for r in found]
    assert told == [(w, n, f) for w in ("alexnet", "mnist_small") for n in (2, 1) for f in ("last", "auto")]
    text = "[defaults]\nbatch = 4\nthreads = 2\nknobs = { bucket = 7, format = 'last' }\n" + SINGLE
    (found,) = cases(text + "batch = 16\nknobs.bucket = 9\n")
    assert (found.case.batch, found.case.placement.threads) == (16, 2)
    assert found.case.knobs == {"bucket": 9, "format": "last"}


def test_lr_scales_with_the_global_batch_which_strong_scaling_shares(cases):
    block = SINGLE.replace("single", "ddp") + "batch = 64\nranks = [1, 4]\n"
    assert [r.case.lr for r in cases(block)] == pytest.approx([0.01, 0.04])
    assert [r.case.lr for r in cases(block + "lr = 0.5\n")] == [0.5, 0.5]
    block = SINGLE.replace("single", "ddp") + 'batch = 64\nranks = [1, 4]\nscaling = "strong"\n'
    found = [r.case for r in cases(block)]
    assert [(case.batch, case.global_batch, case.scaling) for case in found] == [(64, 64, "weak"), (16, 64, "strong")]
    assert found[0].lr == found[1].lr
    (same,) = cases(SINGLE.replace("single", "ddp") + "batch = 64\n")
    assert same.case.id == found[0].id


def test_a_batch_may_be_all_that_a_training_learns_from(cases, tmp_path):
    np.savez(tmp_path / "mine.npz", images=np.zeros((21, 28, 28), np.uint8), labels=np.arange(21) % 10)
    learning = 'data = "mine.npz"\npasses = ["train"]\nbatch = [4, "all"]\nranks = [1, 2]\n'
    found = cases("[training]\nheld_out = 0.25\n" + SINGLE.replace("single", "ddp") + learning)
    assert [r.case.batch for r in found] == [4, 4, 16, 8]  # 5 of 21 are held out
    assert found[2].case.lr == pytest.approx(0.01 * 16 / 64)
    with pytest.raises(RequestError, match="batch = 'all' is every sample that the pass 'train' learns from"):
        cases(SINGLE + 'data = "mine.npz"\nbatch = "all"\n')


def test_batches_may_be_a_table_by_workload(cases):
    block = SINGLE.replace('"mnist_small"', '["alexnet", "mnist_small"]')
    table = "batch = { alexnet = 4, mnist_small = [8, 16] }\n"
    for text in (block + table, "[defaults]\n" + table + block):
        found = [(r.case.workload, r.case.batch) for r in cases(text)]
        assert found == [("alexnet", 4), ("mnist_small", 8), ("mnist_small", 16)]
    assert [r.case.batch for r in cases("[defaults]\n" + table + block + "batch = 2\n")] == [2, 2]
    defaults, rest = '[defaults]\nworkload = "mnist_small"\n', SINGLE.replace('workload = "mnist_small"\n', "")
    assert [r.case.batch for r in cases(defaults + rest + table)] == [8, 16]
    with pytest.raises(RequestError, match=r"the table of batches has no 'alexnet'; known: mnist_small"):
        cases(block + "batch = { mnist_small = 8 }\n")
    with pytest.raises(RequestError, match="batch = 0: should be greater than or equal to 1"):
        cases(block + "batch = { alexnet = 0, mnist_small = 8 }\n")


def test_a_straggler_that_cannot_be_is_refused(cases):
    with pytest.raises(RequestError, match=r"plan.toml:6: straggler = 0.5 .*binding = 'none'"):
        cases(SINGLE + "straggler = 0.5\n")
    with pytest.raises(RequestError, match=r"straggler = 0.5 .*cuda device"):
        cases(SINGLE + 'straggler = 0.5\nbinding = "cores"\ndevice = "cuda"\n')
    with pytest.raises(RequestError, match=r"should be less than or equal to 0.95"):
        cases(SINGLE + 'straggler = 1.0\nbinding = "cores"\n')


def test_ids_depend_on_values_and_not_on_spelling(cases):
    (plain,) = cases(SINGLE)
    (spelt,) = cases(SINGLE + 'ranks = [1]\nlauncher = "local"\nknobs.format = "auto"\ndata = "synthetic"\n')
    (other,) = cases(SINGLE + "seed = 2\n")
    assert plain.case.id == spelt.case.id != other.case.id
    assert len(plain.case.id) == 12
    (plain,) = cases(SINGLE)
    (spelt,) = cases(SINGLE + "straggler = 0.0\n")
    (slowed,) = cases(SINGLE + 'straggler = 0.5\nbinding = "cores"\n')
    assert plain.case.id == spelt.case.id != slowed.case.id
    assert plain.case.id == plain.case.on(training=Training(patience=0)).id
    assert plain.case.id != plain.case.on(training=Training(patience=5)).id


def test_the_same_case_twice_is_kept_once_with_a_note(cases):
    found = cases(SINGLE + SINGLE.replace("workload = ", "batch = [8, 4]\nworkload = "))
    assert [r.case.batch for r in found] == [8, 4]
    assert "plan.toml:6" in found[0].reason
    assert "merged" in found[0].reason
    assert found[1].reason == ""
    (once,) = cases(SINGLE + "batch = 8\n" + SINGLE + "batch = [8, 8]\n")
    assert once.reason.count("also spelt") == 1


@pytest.mark.parametrize(
    ("text", "index", "reason"),
    [
        ('["alpha"]\nstrategy = "single"\nranks = [1, 2]', 1, "trains on one rank, not on 2"),
        ('["alpha"]\nstrategy = "single"\ndevices = [1, 2]', 1, "drives one device per rank, not 2"),
        ('["alpha", "beta"]\nstrategy = "ddp"', 1, "beta has no strategy 'ddp'; it has single, ring"),
        ('"alpha"\nstrategy = "ddp"\nbatch = [8, 13]', 1, "alpha is superstitious"),
        ('["alpha", "beta"]\nstrategy = "single"\nprecision = "bfloat16"', 1, "precision 'bfloat16'; it does float32"),
        ('["alpha", "beta"]\nstrategy = "single"\ntuning = "tuned"', 1, "tuning 'tuned'; it does default"),
        ('["alpha", "beta"]\nstrategy = "single"\ndevice = "cuda"', 1, "device 'cuda'; it does cpu"),
        ('["alpha", "beta"]\nstrategy = "single"\nlauncher = "many"', 1, "is started by local, not by many"),
        ('["alpha", "beta"]\nstrategy = "single"\ndata = "mine.npz"', 1, "use data = 'synthetic'"),
        ('"beta"\nstrategy = "single"\noptimiser = ["sgd", "adam"]', 1, "optimiser 'adam'; it does sgd"),
        ('"alpha"\nstrategy = "pipe"\nranks = [1, 2]\nbatch = 15', 0, "2 devices, and 1 do not divide by that"),
        ('"alpha"\nstrategy = "pipe"\nranks = 2\nbatch = [15, 16]', 1, "32 does not divide into microbatches = 3"),
    ],
)
def test_what_an_adapter_cannot_do_is_unsupported_beside_what_it_can(cases, tmp_path, text, index, reason):
    images = np.arange(4 * 28 * 28).reshape(4, 28, 28).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(4))
    found = cases(f'[[cases]]\nworkload = "mnist_small"\nadapter = {text}\n')
    assert [r.outcome for r in found] == [None if i != index else "unsupported" for i in range(2)]
    assert reason in found[index].reason


def test_a_knob_goes_to_the_adapters_that_have_it_and_layers_they_lack_are_named(cases):
    found = cases(
        '[[cases]]\nadapter = ["alpha", "beta"]\nstrategy = "single"\nworkload = "mnist_small"\n'
        '[cases.knobs]\noverlap = ["none", "merged"]\n'
    )
    told = [(r.case.adapter, r.case.knobs.get("overlap")) for r in found]
    assert told == [("alpha", None), ("beta", "none"), ("beta", "merged")]
    (found,) = cases('[[cases]]\nadapter = "beta"\nstrategy = "single"\nworkload = "alexnet"\n')
    assert (found.outcome, found.reason) == ("unsupported", "beta has no layers of kind dropout, lrn")


def test_auto_takes_a_launcher_that_reaches_the_nodes_and_that_a_plugin_brings(cases, toys, plan_file):
    one, two = cases(SINGLE.replace("single", "ddp") + "nodes = [1, 2]\n")
    assert [r.case.placement.launcher for r in (one, two)] == ["local", "many"]
    assert two.case.placement.ranks == 2
    plan = load(plan_file(HEAD + '[[cases]]\nadapter = "beta"\nstrategy = "ring"\nworkload = "mnist_small"\n'))
    (found,) = resolve(plan, toys.adapters, {"local": toys.launchers["local"]}, toys.workloads)
    assert found.outcome == "unavailable"
    assert "'many'" in found.reason


def test_data_become_absolute_paths_and_must_be_there_and_fit_the_network(cases, tmp_path):
    np.savez(tmp_path / "mine.npz", images=np.zeros((4, 28, 28), np.uint8), labels=np.arange(4))
    text = SINGLE.replace('"mnist_small"', '["mnist_small", "alexnet"]') + 'data = "mine.npz"\n'
    fits, misfit = cases(text)
    assert fits.case.data == str(tmp_path / "mine.npz")
    assert (fits.outcome, misfit.outcome) == (None, "unsupported")
    assert misfit.reason == "mine.npz holds images of 1x28x28, alexnet wants 3x227x227"
    np.savez(tmp_path / "mine.npz", images=np.zeros((2, 28, 28), np.uint8), labels=np.array([0, 10]))
    (found,) = cases(SINGLE + 'data = "mine.npz"\n')
    assert (found.outcome, found.reason) == ("unsupported", "mine.npz has labels up to 10, mnist_small has 10 classes")
    (found,) = cases(SINGLE + 'data = "real"\n')
    assert found.outcome == "unavailable"
    assert "stagebench data make digits" in found.reason


def test_a_named_set_keeps_its_name_wherever_it_stands(cases, data_home, monkeypatch):
    ids = []
    for home in (data_home, data_home.with_name("elsewhere")):
        home.mkdir()
        np.savez(home / "digits.npz", images=np.zeros((4, 28, 28), np.uint8), labels=np.arange(4))
        monkeypatch.setenv("STAGEBENCH_DATA", str(home))
        named, meant = (cases(SINGLE + f'data = "{data}"\n')[0] for data in ("digits", "real"))
        assert (named.outcome, named.case.data, named.case.data_name) == (None, "digits", "digits")
        assert meant.case.id == named.case.id
        assert locate(named.case.data, by_name()["mnist_small"]) == DataSet("arrays", str(home / "digits.npz"))
        ids.append(named.case.id)
    assert ids[0] == ids[1]


def test_without_plugins_the_remedy_is_told_and_without_a_name_the_file_s_is_taken(plan_file):
    with pytest.raises(RequestError, match="not installed"):
        resolve(load(plan_file(HEAD + SINGLE)), {}, {}, {})
    assert load(plan_file(SINGLE)).name == "plan"
    assert load(plan_file(HEAD + SINGLE)).name == "x"
    plans = [load(name) for name in ready_made()]
    assert "quick" in {plan.name for plan in plans}
    assert [plan.name for plan in plans] == [plan.file.stem for plan in plans]


def test_a_strategy_of_one_process_drives_its_devices_and_no_more_ranks(cases):
    mirror = SINGLE.replace("single", "mirror") + "batch = 16\n"
    (both,) = cases(mirror + "devices = 2\n")
    assert both.outcome is None
    assert (both.case.placement.ranks, both.case.placement.device_count, both.case.global_batch) == (1, 2, 32)
    assert both.case.lr == pytest.approx(0.01 * 32 / 64)
    assert both.case.label == "alpha/mirror mnist_small 2 devices batch 16 synthetic"
    (ranks,) = cases(mirror + "ranks = 2\n")
    assert ranks.reason.startswith("alpha's strategy 'mirror' trains on one rank, not on 2; it drives several devices")
    (devices,) = cases(SINGLE.replace("single", "ddp") + "devices = 2\n")
    assert devices.reason.startswith("alpha's strategy 'ddp' drives one device per rank, not 2; it takes a rank for")


def test_only_a_case_that_trains_depends_on_how_it_trains(cases):
    training = "[training]\nepochs = 3\n"
    (speed,), (again,) = cases(SINGLE), cases(training + SINGLE)
    assert speed.case.id == again.case.id
    learning = SINGLE + 'passes = ["train"]\ndata = "real"\n'
    (three,), (ten,) = cases(training + learning), cases(learning)
    assert (three.case.passes, three.case.training.epochs, ten.case.training.epochs) == (("train",), 3, 10)
    assert three.case.id != ten.case.id
    assert stored_and_read(three.case) == three.case


def test_a_rate_that_changes_is_declared_by_the_strategy_and_its_decay_begins(cases):
    learning = SINGLE + 'passes = ["train"]\ndata = "real"\nwarmup_epochs = [0, 2.5]\ndecay = "cosine"\n'
    kept, rising = cases(learning)
    assert (kept.case.schedule, rising.case.schedule) == (Schedule(0, "cosine"), Schedule(2.5, "cosine"))
    assert rising.reason.startswith("alpha/single keeps one learning rate; leave warmup_epochs and decay out of its b")
    assert stored_and_read(rising.case) == rising.case
    (speed,), (usual,) = cases(SINGLE + "warmup_epochs = 2.5\n"), cases(SINGLE)
    assert speed.case == usual.case, "a pass that measures speed has no epochs"
    learning = "[training]\nepochs = 5\n" + SINGLE + 'passes = ["train"]\ndata = "real"\nwarmup_epochs = [4, 5]\n'
    assert len(cases(learning)) == 2
    with pytest.raises(RequestError) as refused:
        cases(learning + 'decay = "cosine"\n')
    reason = str(refused.value)
    assert "plan.toml:10: warmup_epochs = 5 fills all epochs (5), so that decay = 'cosine' never begins" in reason
    assert "warmup_epochs = 4" not in reason


def test_how_data_are_read_tells_cases_apart_only_where_they_are_read(cases):
    ways = 'data_mode = ["disk", "memory"]\nrepeat = [1, 4]\n'
    read = cases(SINGLE + 'data = "real"\n' + ways)
    assert [(r.case.input.mode, r.case.input.repeat) for r in read] == [
        ("disk", 1), ("disk", 4), ("memory", 1), ("memory", 4),
    ]  # fmt: skip
    assert len({r.case.id for r in read}) == 4
    assert stored_and_read(read[3].case) == read[3].case
    assert len(cases(SINGLE + ways)) == 1, "synthetic data are not read"


def test_stages_that_cannot_be_told_apart_have_no_pass_alone():
    apart = ("io", "h2d", "forward", "backward", "communication", "update")
    found = [measurable(Strategy("s", "", "", separable=tuple(set(apart) - {lost})), USUAL) for lost in apart]
    lost = [set(USUAL) - set(each) for each in found]
    assert lost == [{"io_only"}, set(), set(), set(), {"comm_only"}, set()]


def test_what_infers_has_loads_alone():
    infers, trains = Strategy("s", "", "", infers=True), Strategy("s", "", "")
    assert measurable(infers, USUAL) == USUAL_LOADS
    assert measurable(infers, ("native", "server")) == ("offline", "server")
    assert measurable(trains, ("native", "offline")) == ("native",)
    for strategy, asked, remedy in ((infers, "native", "'offline'"), (trains, "offline", "'native'")):
        case = Case("alpha", "s", "mnist_small", passes=(asked,))
        assert idle(case, measurable(strategy, case.passes), strategy.infers).endswith(f"add {remedy} to them")


def test_a_model_server_is_asked_for_what_it_does():
    plain = ModelServer("plain", "", "", "/", program="x")
    servers = {"plain": plain, "single": replace(plain, name="single", batches=False)}
    servers["free"] = replace(plain, name="free", delays=False)
    asked = Serving(max_delay_ms=2.0, workers=2)
    kept = []
    for name in ("inprocess", *servers):
        case = Case("alpha", "s", "mnist_small", passes=("server",), batch=8, serving=asked._replace(model_server=name))
        kept.append(tuple(serving_of(case, servers)[index] for index in (0, 4)))
        assert (unkept(case, servers) is None) == (name != "single")
        assert unkept(case.on(batch=1), servers) is None
        assert serving_of(case.on(passes=("offline",)), servers) == Serving()
    assert kept == [(2.0, 1), (2.0, 2), (0.0, 2), (0.0, 2)]


def test_kernels_are_profiled_where_they_are_asked_for_and_after_all_else(cases):
    (usual,), (asked,) = cases(SINGLE), cases(SINGLE + 'passes = ["kernels", "staged", "native"]\n')
    assert KERNELS not in usual.case.passes
    assert asked.case.passes == ("native", "staged", KERNELS)
    assert asked.case.passes_of(0) == ("native",), "a breakdown, which few processes run"
    (alone,) = cases(SINGLE + 'passes = ["kernels"]\n')
    assert (alone.outcome, alone.case.passes_of(0)) == (None, (KERNELS,))
    with pytest.raises(RequestError, match="the pass 'train' learns, the others measure speed"):
        cases(SINGLE + 'data = "real"\npasses = ["train", "kernels"]\n')


def test_passes_that_measure_nothing_are_refused_with_the_reason(cases):
    (alone,) = cases(SINGLE + 'passes = ["comm_only", "io_only"]\n')
    assert alone.outcome == "unsupported"
    assert alone.reason == (
        "passes = comm_only, io_only measure nothing here: one device exchanges nothing; synthetic data are not read; "
        "add 'native' to them"
    )
    (some,) = cases(SINGLE + 'passes = ["native", "comm_only"]\n')
    assert some.outcome is None
    (two,) = cases(SINGLE.replace("single", "ddp") + 'passes = ["comm_only"]\nranks = 2\n')
    assert two.outcome is None


def test_a_case_keeps_its_id_where_it_leaves_younger_keys_alone():
    """Runs of months are compared by ids: 903bb8c43b02 is what this case had before the first of them came."""
    place, sampling = Placement(ranks_per_node=2, hosts=("a", "b")), Sampling(breakdowns=2)
    case = Case("pytorch", "ddp", "mnist_small", place, seed=3, sampling=sampling)
    assert case.id == "903bb8c43b02"
    assert case.on(schedule=Schedule(1.0)).id != case.id
    assert case.on(placement=replace(case.placement, memory_limit=1)).id != case.id
