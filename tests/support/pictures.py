"""Pictures that are easily told apart."""

import numpy as np
from PIL import Image


def drawn(seed, width=50, height=40):
    """Smooth colours: neighbours of a damaged or shifted pixel would tell."""
    coarse = np.random.RandomState(seed).randint(0, 255, (5, 5, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.BICUBIC)


ODD = {
    "a photograph.jpg": drawn(1, 500, 375),
    "upright.jpg": drawn(2, 375, 500),
    "large.jpg": drawn(3, 1601, 1203),
    "smaller than the crop.png": drawn(4, 100, 90),
    "grey.jpg": drawn(5, 300, 300).convert("L"),
    "of four inks.jpg": drawn(6, 280, 300).convert("CMYK"),
    "of three colours.jpg": drawn(10, 320, 300),
    "a palette.png": drawn(7, 400, 280).convert("P"),
    "transparent.png": drawn(8, 400, 280).convert("RGBA"),
    "a ribbon.jpg": drawn(9, 3000, 60),
}
