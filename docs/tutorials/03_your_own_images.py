"""
Your own images
===============

An image classifier has seen images that it must forget: here a quarter of the handwritten threes that scikit-learn
comes with. You give the network, the images, and how your training normalised them.
"""

# %%
# A classifier, trained as you train yours
# ----------------------------------------

import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import ofmu_pl

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
pixels = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
images = [(pixels[i], int(digits.target[i])) for i in order]
train, test = images[:1300], images[1300:]
threes = [i for i, (_, label) in enumerate(train) if label == 3]
chosen = set(threes[: len(threes) // 4])
forget = [train[i] for i in chosen]
retain = [pair for i, pair in enumerate(train) if i not in chosen]


def fitted(pairs):
    """A small network, trained on pairs of images and classes."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    x = torch.stack([image for image, _ in pairs])
    y = torch.tensor([label for _, label in pairs])
    for _ in range(30):
        for some in torch.randperm(len(y)).split(64):
            nn.functional.cross_entropy(net((x[some] - 0.5) / 0.5), y[some]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net.eval()


network, retrained = fitted(train), fitted(retain)
len(forget), len(retain), len(test)

# %%
# Forget
# ------
#
# The data sets are any of (image, class) pairs, *not* normalised; ``mean`` and ``std`` say how your training did
# that. ``test`` holds images that no network has seen. A retrained network is a luxury that you will seldom have;
# here it shows where the numbers should go.

result = ofmu_pl.unlearn(
    copy.deepcopy(network),
    forget=forget,
    retain=retain,
    test=test,
    mean=[0.5],
    std=[0.5],
    reference=retrained,
    progress=False,
    accelerator="cpu",
)
result.table()

# %%
# ``UA`` is the share of forgotten images that the network now takes for another class, ``RA`` and ``TA`` the
# accuracy on what it keeps and on unseen images. Compare each with its *target*: a retrained network is right about
# most threes, too, since it has seen others. So a high ``UA`` is no success by itself.

names = ["UA", "RA", "TA", "MIA"]
sides = {
    "before": result.before,
    "after": result.metrics,
    "retrained": result.retrained,
}
figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for i, (name, metrics) in enumerate(sides.items()):
    axis.bar(
        [k + 0.27 * (i - 1) for k in range(4)],
        [metrics[n].value for n in names],
        0.25,
        label=name,
    )
axis.set(xticks=range(4), xticklabels=names, ylabel="%")
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
figure.show()

# %%
# The honest number
# -----------------
#
# A label is little to go by. ``forget_test_AUC`` asks an attacker to tell forgotten images from held-out ones by
# their loss: 0.5 is a coin, above it the images are still known, below it they stand out as unknown.

auc = result.metrics["forget_test_AUC"]
result.before["forget_test_AUC"].value, auc.value, auc.interval

# %%
# Folders of photographs, checkpoints and torchvision's classifiers work from the command line: :doc:`/own-images`.
# Forgetting a whole class, BatchNorm, and what the numbers of other papers owe to both: :doc:`/images`.
