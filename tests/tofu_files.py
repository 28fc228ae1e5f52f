"""TOFU folders for tests."""

import json


def tofu_files(folder, **changes):
    """A folder with one row a config."""
    names = ["forget10", "retain90", "full", *(f"{s}_perturbed" for s in ("forget10", "retain", "real_authors"))]
    for name in [*names, "world_facts_perturbed"]:
        rows = changes.get(name, [{"question": f"What is {name}?", "answer": "It."}])
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)
