"""A function on two ranks, which are forked: nothing is imported again."""

import torch
import torch.multiprocessing as mp


def on_two_ranks(make, folder):
    """What a function of the rank gives on each of two."""
    mp.start_processes(_rank, args=(make, folder), nprocs=2, start_method="fork")
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def _rank(rank, make, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save(make(rank), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()
