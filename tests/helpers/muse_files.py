"""MUSE's files, made from Authors as running texts."""

import json

from ofmu_pl.data.authors_corpus import corpus

PEOPLE = corpus(9, seed=0)[0]
SIDES = {"forget": range(2), "retain": range(2, 6), "holdout": range(6, 9)}


def asked(authors):
    return [{"question": row["question"], "answer": row["answer"]} for i in authors for row in PEOPLE[i].rows]


def text(author):
    return " ".join(row["answer"] for row in PEOPLE[author].rows)


def parts():
    """MUSE's files: each author is one running text."""
    texts = {side: list(map(text, authors)) for side, authors in SIDES.items()}
    words = [(f"{whole} " * 5).split(" ") for whole in texts["forget"]]
    return {
        "raw/forget": texts["forget"],
        "raw/retain1": texts["retain"],
        "sust/forget_1": texts["forget"][:1],
        **{f"privleak/{side}": some for side, some in texts.items()},
        "verbmem/forget": [{"prompt": " ".join(w[:10]), "gt": " ".join(w[10:])} for w in words],
        **{f"knowmem/{side}_qa": asked(SIDES[side]) for side in ("forget", "retain")},
        **{f"knowmem/{side}_qa_icl": asked(SIDES["holdout"])[:2] for side in ("forget", "retain")},
    }


def written(folder, files):
    for name, rows in files.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows))
    return str(folder)
