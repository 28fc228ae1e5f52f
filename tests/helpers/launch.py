"""Starts a script on some ranks, each with one thread, and waits."""

import os
import subprocess
import sys


def launch(script, ranks, *words):
    launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = subprocess.run(
        [sys.executable, *launcher, script, *words],
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
