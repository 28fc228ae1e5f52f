"""How each printed command runs in the slow test: shortened, as a dry run, or not at all, and then why."""

from tests.helpers.printed import ours

_FEW = "--trainer.max_steps 2 --evaluation.rows 4 --evaluation.max_new_tokens 4 --evaluation.every_n_steps null".split()
_FEW_IMAGES = "--trainer.max_steps 2 --evaluation.every_n_steps null".split()
_FEW_ATTACKS = ["--attacks", "[Quantise, Confidence, LogitLens, DepthScore, LinearProbe]"]  # those that train nothing
_TINY = "../shared/models/tofu-tiny"
_RESULTS = "logs/*/*/version_*/results.json"
DOTS = {
    "configs/tofu.yaml": f"--data.data ../shared/data/tofu --model.network.path {_TINY}-full "
    f"--evaluation.reference {_TINY}-retain90",
}
"""What three dots stand for after a configuration: the page on its data prints it."""
TOFU = ["fit", "--config", "configs/tofu.yaml", *DOTS["configs/tofu.yaml"].split(), *_FEW]
"""What leaves ``logs/tofu/ofmu/version_0``."""

NOT_RUN = {
    "scripts/quickstart.sh": "installs 3 GB; `ofmu_pl quickstart`, which it starts, runs",
    "pip": "installs 3 GB",
    ".": "is the shell's",
    "scripts/reproduce.sh": "an hour, of which `configs/benchmarks/NAME.yaml` stands for a minute",
    "scripts/plans.py": "half an hour",
    "scripts/metrics_measured.py": "its models are not published",
    "efficientnet.Lite0": "its weights and CIFAR-10 are not among the tests' packages",
    "scripts/efficientnet.py": "needs these two",
    "configs/benchmarks/digits.yaml": "an hour: `configs/benchmarks/NAME.yaml` is two methods and one seed of it",
    "[arc_easy, piqa]": "the data of lm-eval's own tasks come from the hub",
}
"""Words of commands that are only read, and why."""
DRY = {
    "configs/wmdp.yaml": "Zephyr-7B and its data come from the hub",
    "configs/hardware/fsdp2_4xh100.yaml": "four GPUs",
    "configs/cifar.yaml": "two ResNet-18 are trained on CIFAR-10, which comes from the net",
}
"""Words of commands that run with ``--dry_run``, and why."""
RUN: dict[str, tuple[list[str], str | None]] = {
    "plan": ([], None),
    "configs/text.yaml": (_FEW, _RESULTS),
    "configs/text_finetune.yaml": (_FEW, _RESULTS),
    "configs/tofu.yaml": (_FEW, _RESULTS),
    "configs/authors.yaml": (_FEW, _RESULTS),
    "configs/images.yaml": (_FEW_IMAGES, _RESULTS),
    "configs/digits.yaml": ([], _RESULTS),
    "configs/attacks.yaml": (_FEW_ATTACKS, "logs/quickstart/authors/all/ofmu/seed_0/latest/attacks.json"),
    "configs/benchmarks/NAME.yaml": ([], "logs/mine/report/index.html"),
    "configs/requests/authors.yaml": (
        ["--requests", "[{forget_authors: [45]}]", "--retrained", "null"],
        "logs/requests_authors/report/index.html",
    ),
    "configs/requests/digits.yaml": (
        ["--requests", "[{forget_classes: [0]}]"],
        "logs/requests_digits/report/index.html",
    ),
    "report": ([], "logs/quickstart/report/index.html"),
    "find": ([], "found/found.html"),
    "lineage": ([], None),
    "purge": ([], None),
}
"""Words of commands that run; what is added so that they take seconds; and the file that they leave."""


def way(words: list[str]) -> tuple[str, list[str], str | None]:
    """How a command that ``printed.commands`` gives is run, the words after the program's name, and what they leave.

    It is ``"run"``, ``"dry"``, ``"not run"``, or ``"new"``, of which nobody has said how.
    """
    given = ours(words) or words
    dots = [word for name in DOTS if name in given for word in DOTS[name].split()] if "..." in given else []
    given = [word for word in given if word != "..."] + dots
    if any(word in NOT_RUN for word in words):
        return "not run", given, None
    if "plan" not in given and any(word in DRY for word in words):
        return "dry", given if "--dry_run" in given else [*given, "--dry_run"], None
    for word, (options, leaves) in RUN.items():
        if word in words:
            return "run", given + options, leaves
    return "new", given, None
