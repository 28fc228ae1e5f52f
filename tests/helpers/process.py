"""The command line in processes of its own: one that can be killed, and some ranks."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import torch

from ofmu_pl.cli import main
from ofmu_pl.evaluation.text import TextEvaluation

EVALUATION = "the final evaluation"
FORK, FORKSERVER = (multiprocessing.get_context(name) for name in ("fork", "forkserver"))
# So that a process starts in a moment. The server does not see pytest's path, and so none of the tests' modules.
LIBRARIES = [
    "transformers.models.llama.modeling_llama",
    "torch.utils.tensorboard",
    "matplotlib.backends.backend_agg",
    "rouge_score.rouge_scorer",
    "sklearn.datasets",
    "sklearn.svm",
]
OF_RANKS = ["peft", "torch.distributed.checkpoint.state_dict", "lightning.fabric.strategies.model_parallel"]


def start_server():
    """Start the server that processes are forked from, with what every run would import otherwise."""
    FORKSERVER.set_forkserver_preload(["ofmu_pl.cli.configured", *LIBRARIES])
    forkserver.ensure_running()


def killed_benchmark(words, output, sign):
    """Kill a benchmark as soon as ``sign()`` is true; what it has printed so far is in the file ``output``.

    Its process is forked from this one, and its runs come from this one's server: nothing is imported again.
    """
    start_server()
    process = FORK.Process(target=_benchmark, args=(words, output))
    process.start()
    limit = time.monotonic() + 120
    try:
        while not sign():
            assert process.is_alive(), output.read_text()
            assert time.monotonic() < limit
            time.sleep(0.02)
    finally:
        process.kill()
        process.join()


def _benchmark(words, output):
    # The server is no child of this process, which cannot wait for it.
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None
    run(words, output)


def run(words, output, hold=None):
    """Run a command line; all that it prints goes to a file.

    With ``hold`` it waits for ever, with the file ``<output>.held`` as the sign, just before a file or folder of this
    name is put in its place, or in the midst of ``EVALUATION``.
    """
    torch.set_num_threads(1)
    replace, score = os.replace, TextEvaluation.score

    def wait():
        Path(f"{output}.held").touch()
        time.sleep(3600)

    def held_replace(source, target):
        if Path(target).name == hold:
            wait()
        replace(source, target)

    def held_score(self, trainer, *args, **kwargs):
        scores = score(self, trainer, *args, **kwargs)
        if hold == EVALUATION and trainer.global_step == trainer.max_steps:
            wait()
        return scores

    with contextlib.ExitStack() as stack:
        file = stack.enter_context(Path(output).open("a"))
        stack.enter_context(contextlib.redirect_stdout(file))
        stack.enter_context(contextlib.redirect_stderr(file))
        stack.enter_context(mock.patch("os.replace", held_replace))
        stack.enter_context(mock.patch.object(TextEvaluation, "score", held_score))
        main(words)


def two_ranks(words, output):
    """Run a command line on two ranks, and return the exit codes."""
    return on_ranks(2, run, words, output)


def on_ranks(size, target, *args):
    """Call a function on some ranks, which know of each other as torchrun's do, and return the exit codes.

    Their processes are forked from this one, so that nothing is imported again.
    """
    for name in (*LIBRARIES, *OF_RANKS):  # here, so that not each rank does
        importlib.import_module(name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [FORK.Process(target=_on_rank, args=(rank, size, port, target, args)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(280)
    return [process.exitcode for process in ranks]


def _on_rank(rank, size, port, target, args):
    known = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "forked", "OFMU_CACHE": ""}
    os.environ.update({name: str(value) for name, value in known.items()})
    torch.set_num_threads(1)
    target(*args)


def fallen(words, output, below, number):
    """``run``, killed just before one of its file operations: what is opened to be written, made, renamed, removed.

    Operations below a folder are numbered from 1; with 0 none is the last, and ``<output>.count`` says how many there
    were. Results are kept in that folder's ``cache``.
    """
    os.environ["OFMU_CACHE"] = str(Path(below, "cache"))
    seen = 0

    def count(event, args):
        nonlocal seen
        writes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.truncate")
        if not writes and not (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        named = [str(x) for x in args[:2] if isinstance(x, str | os.PathLike)]
        if any(name.startswith(f"{below}/") for name in named):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    run(words, output)
    if not number:
        Path(f"{output}.count").write_text(str(seen))


def launch(script, ranks, *words):
    """Start a script on some ranks, each with one thread, and wait."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    command, env = [sys.executable, *launcher, script, *words], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
