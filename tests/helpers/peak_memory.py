"""Peak memory of a real run on the CPU, as torch's own profiler has it: nothing of the plan's counting."""

import gc
import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from ofmu_pl.data import Authors, Digits
from ofmu_pl.data.encoded import Encoded
from ofmu_pl.planning.rehearsal import Rehearsal
from ofmu_pl.support.errors import UserError
from tests.helpers.training import quiet_trainer


def blank(module, images=False, rows=4, tokens=64):
    """A data module whose rows are as large as the plan assumes, and differ."""
    options = {"streams": module.streams, "num_batches": module.num_batches, "batch_size": rows}
    data = Digits(forget_classes=[0], **options) if images else Authors(authors=6, max_length=tokens, **options)
    data.blank()
    generator = torch.Generator().manual_seed(0)
    if images:
        data.images = torch.randint(256, data.images.shape, generator=generator, dtype=torch.uint8)
        data.splits = data.splits | {"forget": data.splits["forget"][::-1]}
        return data
    data.tokenizer = data.make_tokenizer()
    for encoded in data._encoded.values():
        for i, row in enumerate(encoded):
            ids = torch.randint(5, len(data.tokenizer), (len(row.input_ids),), generator=generator).tolist()
            encoded[i] = Encoded(ids, [-100, *ids[1:]], 1)
    return data


def peak(module, data, folder, precision="32-true"):
    """Bytes of tensors at the worst moment of two iterations."""
    for stream in getattr(module, "per_item_reference", ()):
        module.reference_nll[stream] = torch.zeros(data.batch_size)
    gc.collect()  # what dies during the profile and was born before would be subtracted
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        quiet_trainer(2, precision=precision).fit(module, datamodule=data)
    profiler.export_chrome_trace(str(Path(folder) / "trace.json"))
    events = json.loads((Path(folder) / "trace.json").read_text())["traceEvents"]
    memory = sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"])
    before = memory[0]["args"]["Total Allocated"] - memory[0]["args"]["Bytes"]  # what earlier profiles left
    return max(e["args"]["Total Allocated"] for e in memory) - before


def needs(module, data, **trainer):
    """What a rehearsal says that an iteration takes, on a CPU unless the trainer's options say otherwise."""
    rehearsal = Rehearsal({"accelerator": "cpu"} | trainer)
    course = rehearsal.fit(module, data)
    if course.fault:
        raise UserError(course.fault)
    return rehearsal.needs


def fsdp2(size):
    """Options of a trainer whose processes share everything."""
    strategy = "lightning.pytorch.strategies.ModelParallelStrategy"
    options = {"data_parallel_size": size, "tensor_parallel_size": 1}
    return {"devices": size, "strategy": {"class_path": strategy, "init_args": options}}
