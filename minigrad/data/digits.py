"""Images of handwritten digits."""

import numpy as np

from minigrad.data.dataset import ArrayDataset
from minigrad.data.order import check_split, split_indices


def digits(split: str = "train", size: int = 8, seed: int = 0) -> ArrayDataset:
    """Load the 1,797 handwritten digits of scikit-learn, split at random: a fifth (359) is held out for testing.

    They are the test set of "Optical Recognition of Handwritten Digits" (Alpaydin, Kaynak 1998,
    https://doi.org/10.24432/C50P49), 8 × 8 pixels with 17 grey levels. Raises ImportError if scikit-learn is not
    installed, and ValueError for an unknown split or size. The images are (N, size, size), float32 from 0 to 1, and the
    labels (N,), int64.

    Parameters
    ----------
    split : {"train", "test"}
    size : {8, 28}
        28 enlarges the images to the size of MNIST: along each axis, new pixel i is the linear interpolation of the old
        ones at (i + ½) · 8/28 − ½, clamped to the border.
    seed : int
        The seed of the split. Use the same one for both splits.

    Examples
    --------
    >>> images, labels = mg.data.digits("test", size=28)[:]
    >>> images.shape, labels.shape
    ((359, 28, 28), (359,))
    """
    check_split("digits", split)
    if size not in (8, 28):
        raise ValueError(f"[digits] expected size 8 or 28, got {size!r}")
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("[digits] expected scikit-learn, which has the images: pip install scikit-learn") from error
    bunch = load_digits()
    images, labels = bunch.images / 16, bunch.target.astype(np.int64)
    if size != 8:
        weights = interpolation(8, size)
        images = weights @ images @ weights.T
    chosen = split_indices("digits", len(labels), split, seed)
    return ArrayDataset(images[chosen].astype(np.float32), labels[chosen])


def interpolation(old: int, new: int) -> np.ndarray:
    """Return the matrix (new, old) of linear interpolation between the centers of pixels."""
    places = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(0, 1 - abs(places[:, None] - np.arange(old)))
