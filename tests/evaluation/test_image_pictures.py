"""Pictures of what was forgotten."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ofmu_pl.evaluation.image_pictures import _sheet, plt


@pytest.mark.parametrize(("shape", "drawn"), [((3, 1, 1), (1, 1, 3)), ((1, 1, 2), (1, 2)), ((3, 1, 4), (1, 4, 3))])
def test_images_of_one_row_or_one_pixel(shape, drawn):
    """Their sides of length 1 are no channels."""
    images = torch.zeros(2, *shape, dtype=torch.uint8)
    data = SimpleNamespace(images_of=lambda _: (images, torch.tensor([0, 1])), class_names=("ant", "bee"))
    scores = SimpleNamespace(
        predictions=np.array([0, 0]), log_probs=np.log([[0.5, 0.5]] * 2), correct=np.array([True, False])
    )
    figure = _sheet(data, {"after": {"forget": scores}})
    assert [axis.images[0].get_array().shape for axis in figure.axes if axis.images] == [drawn, drawn]
    plt.close(figure)
