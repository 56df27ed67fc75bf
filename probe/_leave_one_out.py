"""How far a line through all other points misses a point: the error that an affine predictor would have made.

Only errors: correlating such predictions with the truth is a trap, since a useless score then correlates negatively by
construction (leaving out a large value lowers the mean of the rest).

Shape legend: `predictor`, `point`.
"""

import numpy as np
from jaxtyping import Float


def leave_one_out(
    x: Float[np.ndarray, "predictor point"], y: Float[np.ndarray, " point"]
) -> Float[np.ndarray, "predictor point"]:
    """Each point by the least-squares line a x + b through the others; by their mean where their x does not vary.

    Args:
        x: One row a predictor.
        y: What is predicted.

    Raises:
        ValueError: There are fewer than three points.

    Example:
        >>> x, y = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]]), np.array([1.0, 3.0, 5.0])
        >>> leave_one_out(x, y).tolist()
        [[1.0, 3.0, 5.0], [4.0, 3.0, 2.0]]
    """
    size = len(y)
    if size < 3:
        raise ValueError(
            f"a line through the others takes at least three points; found {size}; leave_one_out"
        )
    others = (1 - np.eye(size)) / (size - 1)
    x_mean, y_mean = x @ others, y @ others
    x_left, y_left = x[:, None] - x_mean[..., None], y - y_mean[:, None]
    weight = others[None]
    spread = (weight * x_left**2).sum(-1)
    varies = spread > 1e-20 * (x**2).max(-1, keepdims=True)
    slope = np.where(varies, (weight * x_left * y_left).sum(-1) / np.where(varies, spread, 1), 0)
    predicted: Float[np.ndarray, "predictor point"] = y_mean + slope * (x - x_mean)
    return predicted
