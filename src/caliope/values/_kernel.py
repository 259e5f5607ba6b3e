"""Ridge regression on kernel features: smooth functions of few features, hardly shrunk."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Float


class KernelRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Ridge regression on the Gaussian kernel of standardised features, with a sample of the rows as centres.

    The kernel is :math:`\exp(-\lVert x - z \rVert^2 / p)` for p features; Nyström's approximation has one component per
    centre. Predictions stay in the range of the targets, as those of trees do: rounds of fitted Q cannot diverge.

    When it breaks: with many features every row is far from every centre, and predictions are close to the mean.

    Parameters
    ----------
    n_components : int
        Centres; all rows where there are fewer.
    alpha : float
        Penalty of the squared coefficients, above 0.
    random_state : int, optional
        Seed of the centres.

    References
    ----------
    Williams & Seeger (2001), using the Nyström method to speed up kernel machines.

    Examples
    --------
    >>> import numpy as np
    >>> from caliope.values import KernelRegressor
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> KernelRegressor().fit(x, np.sin(x[:, 0])).predict([[1.5], [4.5]]).round(1)
    array([ 1., -1.])
    """

    def __init__(self, n_components: int = 50, *, alpha: float = 0.3, random_state: int | None = 0) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> KernelRegressor:
        """Draw the centres, and solve for the coefficients."""
        return self.fit_around(None, X, y)

    def fit_around(self, centres: Pipeline | None, X: ArrayLike, y: ArrayLike) -> KernelRegressor:
        """Solve for the coefficients; ``centres`` are those that were drawn from these rows before."""
        x, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self.features_ = self.draw_centres(x) if centres is None else centres
        z = self.features_.transform(x)
        self.coef_ = ridge_smoother(z, self.alpha) @ targets
        self.intercept_ = float(targets.mean() - z.mean(axis=0) @ self.coef_)
        self.range_ = float(targets.min()), float(targets.max())
        return self

    def predict(self, X: ArrayLike) -> Float:
        """Predict the target of each row, within the range of the fitted targets, (N,)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        return np.clip(self.intercept_ + self.features_.transform(x) @ self.coef_, *self.range_)

    def draw_centres(self, x: Float) -> Pipeline:
        """Draw centres from the rows; its ``transform`` makes the features of any rows, (N, m)."""
        centres = Nystroem(n_components=min(self.n_components, len(x)), random_state=self.random_state)
        return make_pipeline(StandardScaler(), centres).fit(np.asarray(x, dtype=np.float64))


def ridge_smoother(z: Float, alpha: float) -> Float:
    r"""The matrix that turns targets into coefficients, :math:`(Z_c^\top Z_c + \alpha I)^{-1} Z_c^\top`, (m, n).

    :math:`Z_c` are the features less their means; the intercept is not shrunk.
    """
    centred = z - z.mean(axis=0)
    return cho_solve(cho_factor(centred.T @ centred + alpha * np.eye(z.shape[1])), centred.T)
