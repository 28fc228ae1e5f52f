"""
Your own text
=============

Your rows are in files, and their columns have names of their own. Nothing needs to be converted: you say which
column is what, and which rows must go.
"""

# %%
# Three files
# -----------
#
# A support assistant was trained on tickets. One customer's tickets must go. Here is the training file as it might
# be, and a file of tickets that were never used for training; the latter is what tells later whether the customer's
# tickets are really gone.

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from tiny import authors, taught

import ofmu_pl

folder = Path(tempfile.mkdtemp())
rows, tokenizer = authors(people=4, forget=1, strangers=2)


def write(name, tickets):
    with open(folder / name, "w", newline="") as file:
        writer = csv.DictWriter(file, ["customer", "ticket", "reply"])
        writer.writeheader()
        writer.writerows(tickets)


def tickets(of, customer):
    return [
        {"customer": customer, "ticket": row["question"], "reply": row["answer"]}
        for row in of
    ]


write(
    "tickets.csv", tickets(rows["retain"], "others") + tickets(rows["forget"], "Falbro")
)
write("unused.csv", tickets(rows["holdout"], "nobody"))
print((folder / "tickets.csv").read_text()[:220])

# %%
# The model that was trained on them. Yours is any ``AutoModelForCausalLM`` with its tokenizer.

model = taught(rows["forget"] + rows["retain"], tokenizer)

# %%
# Who must go
# -----------
#
# ``full`` and ``forget_where`` of the command line choose rows of one file by a column. In Python the same choice
# is two lists, and ``columns`` says which column is the question and which the answer.

with open(folder / "tickets.csv") as file:
    read = list(csv.DictReader(file))
forget = [row for row in read if row["customer"] == "Falbro"]
retain = [row for row in read if row["customer"] != "Falbro"]

result = ofmu_pl.unlearn(
    model,
    tokenizer,
    forget=forget,
    retain=retain,
    holdout=folder / "unused.csv",
    columns={"question": "ticket", "answer": "reply"},
    progress=False,
    accelerator="cpu",
)

# %%
# The command line does the same with
#
# .. code-block:: bash
#
#    python -m ofmu_pl fit --config configs/text.yaml --model.network.path MODEL \
#        --data.full tickets.csv --data.forget_where customer=Falbro --data.holdout unused.csv \
#        --data.columns '{question: ticket, answer: reply}'
#
# Is it gone?
# -----------
#
# Ask the attackers. Each bar is an interval: where it holds 0.5, that attacker cannot tell a forgotten ticket from
# one that was never seen. Eight rows make wide intervals, and a wide interval proves little; give as many holdout
# rows as you have.

attacks = [name for name in result.metrics if name.startswith("mia_")]
figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
for i, name in enumerate(attacks):
    axis.plot(
        result.metrics[name].interval, [i, i], color="tab:blue", linewidth=6, alpha=0.4
    )
    axis.plot(
        result.metrics[name].value,
        i,
        "o",
        color="tab:blue",
        label="after" if i == 0 else None,
    )
    axis.plot(
        result.before[name].value,
        i,
        "x",
        color="tab:gray",
        label="before" if i == 0 else None,
    )
axis.axvline(0.5, color="black", linewidth=1)
axis.set(
    yticks=range(len(attacks)),
    yticklabels=attacks,
    xlim=(0, 1.05),
    xlabel="AUC, forgotten against never seen",
)
axis.legend(frameon=False)
figure.show()

# %%
# What the run says about itself belongs to the result, too.

print(result.remark)
result.before["forget_Q_A_Prob"].value, result.metrics["forget_Q_A_Prob"].value

# %%
# Other forms (conversations, prompts with completions, whole documents), other files and what is refused:
# :doc:`/own-data`.
