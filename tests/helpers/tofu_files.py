"""TOFU folders for tests."""

import json


def tofu_files(folder, **changes):
    """A folder with one row a config."""
    folder.mkdir(exist_ok=True)
    names = ["forget10", "retain90", "full", *(f"{s}_perturbed" for s in ("forget10", "retain", "real_authors"))]
    for name in [*names, "world_facts_perturbed"]:
        more = {"paraphrased_answer": "That.", "perturbed_answer": ["This.", "Nothing."]}
        row = {"question": f"What is {name}?", "answer": "It.", **(more if name.endswith("_perturbed") else {})}
        rows = changes.get(name, [row])
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)
