"""Recommendations: the answer of a choice as dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of candidates that tables and plots show.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its times.

    Attributes
    ----------
    candidate : str
        Format and parameters, for instance ``hll:hack=32,sort=none,tpr=1,col=16``.
    format : str
        Name of the format.
    parameters : dict
        Parameters of the format by name.
    spmv_us, convert_us, total_us : float
        Time of one product, of the conversion, and of all together, in microseconds.
    bytes : int
        Size of the arrays.
    source : str
        Origin of the times: ``measured``, ``predicted`` or ``estimated``.
    break_even_spmvs : int or None
        Number of products from which on the candidate is cheaper than the baseline; None if it
        never is.
    """

    candidate: str
    format: str
    parameters: dict[str, Any]
    spmv_us: float
    convert_us: float
    total_us: float
    bytes: int
    source: str
    break_even_spmvs: int | None

    def total_us_of(self, spmvs: float) -> float:
        """Return the time of the conversion and `spmvs` products, in microseconds."""
        return self.convert_us + spmvs * self.spmv_us


@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate that does not apply to the matrix, and the reason."""

    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The chosen candidate, the ranking of all candidates and the reasons.

    Attributes
    ----------
    choice : str
        The chosen candidate.
    ranking : tuple of Ranked
        Every candidate that applies, the chosen one first.
    refused : tuple of Refused
        Every candidate that does not apply.
    features : dict
        Features of the matrix by name.
    device, precision : str
        Name of the device's profile, and ``f32`` or ``f64``.
    spmvs : int
        Number of products that the choice was made for; with those of the transpose if the matrix
        is symmetric and they were asked for.
    fingerprint : str or None
        Hash of the pattern; None if the matrix was not analysed.
    explanation : tuple of str
        Reasons of the choice, one sentence each.

    Examples
    --------
    >>> import ellect, scipy.sparse
    >>> A = scipy.sparse.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(5000, 5000))
    >>> answer = ellect.recommend(A, device="h200", spmvs=100_000)
    >>> answer.choice == answer.ranking[0].candidate
    True
    >>> answer.baseline.candidate
    'cusparse:alg=csr_alg1'
    >>> answer.features["row_nnz_max"]
    3
    """

    choice: str
    ranking: tuple[Ranked, ...]
    refused: tuple[Refused, ...]
    features: dict[str, float]
    device: str
    precision: str
    spmvs: int
    fingerprint: str | None
    explanation: tuple[str, ...]
    _answer: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_dict(cls, answer: dict[str, Any]) -> Recommendation:
        """Build a recommendation from the parsed JSON of ``ellect recommend --json``."""
        names = [of.name for of in fields(Ranked)]
        return cls(
            choice=answer["choice"],
            ranking=tuple(Ranked(*(item[name] for name in names)) for item in answer["ranking"]),
            refused=tuple(
                Refused(item["candidate"], str(item["reason"])) for item in answer["refused"]
            ),
            features=dict(answer["features"]),
            device=answer["device"],
            precision=answer["precision"],
            spmvs=answer["spmvs"],
            fingerprint=answer.get("fingerprint"),
            explanation=tuple(answer["explanation"]),
            _answer=answer,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a new dictionary, equal to the JSON of the command line."""
        copied: dict[str, Any] = json.loads(json.dumps(self._answer))
        return copied

    @property
    def vectors(self) -> int:
        """Number of vectors of each product."""
        return int(self._answer.get("vectors", 1))

    @property
    def transposed(self) -> Recommendation | None:
        """Recommendation for the products with the transpose; None if there are none.

        That of a symmetric matrix is this one: it counts the products of both directions.
        """
        if "transposed" not in self._answer:
            return None
        own = self._answer["transposed"]
        return self if own is None else Recommendation.from_dict(own)

    @property
    def best(self) -> Ranked:
        """The chosen candidate with its times."""
        return self.ranking[0]

    @property
    def baseline(self) -> Ranked | None:
        """CSR as the caller has it: with cuSPARSE where it exists, else with ellect's kernel.

        None if the ranking does not hold it, as after ``Client.recommend(..., top=1)``.
        """
        named = self._answer.get("baseline")
        wanted = None if named is None else named["candidate"]
        return next((item for item in self.ranking if item.candidate == wanted), None)

    def __str__(self) -> str:
        """Return the explanation as text."""
        return "\n".join(self.explanation)

    def _repr_html_(self) -> str:
        """Return explanation and ranking for notebooks."""
        head = ("candidate", "product", "conversion", "total", "bytes", "pays from", "source")
        cells = [
            (
                item.candidate,
                time_text(item.spmv_us),
                time_text(item.convert_us),
                time_text(item.total_us),
                f"{item.bytes:,}",
                "never" if item.break_even_spmvs is None else f"{item.break_even_spmvs:,}",
                item.source,
            )
            for item in self.ranking[:SHOWN]
        ]
        rows = [("th", head), *(("td", row) for row in cells)]
        table = "".join(
            "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
            for tag, row in rows
        )
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.explanation)
        more = max(len(self.ranking) - SHOWN, 0)
        return (
            f"{sentences}<table>{table}</table>"
            f"<p>{more} more candidates and {len(self.refused)} refused; "
            f"{self.spmvs:,} products in {escape(self.precision)} on {escape(self.device)}</p>"
        )

    def _drawn(self, top: int) -> list[Ranked]:
        """Return the first candidates, and the baseline in any case."""
        shown = list(self.ranking[:top])
        if self.baseline is not None and self.baseline not in shown:
            shown.append(self.baseline)
        return shown

    def plot_ranking(self, ax: Axes | None = None, top: int = SHOWN) -> Axes:
        """Draw the times of one product as bars, the chosen candidate at the top.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; new ones if None.
        top : int
            Number of candidates.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        ax = axes(ax)
        shown = self._drawn(top)
        colors = ["C1" if item == self.baseline else "C0" for item in shown]
        ax.barh([item.candidate for item in shown], [item.spmv_us for item in shown], color=colors)
        ax.invert_yaxis()
        ax.set_xlabel("one product [us]")
        ax.set_title(f"{self.precision} on {self.device}")
        return ax

    def plot_break_even(self, ax: Axes | None = None, top: int = 4) -> Axes:
        """Draw the time of conversion and products over the number of products.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; new ones if None.
        top : int
            Number of candidates; the baseline is drawn in any case.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        ax = axes(ax)
        shown = self._drawn(top)
        most = max(100 * self.spmvs, 10_000)
        counts = [10.0**exponent for exponent in range(len(str(most)))]
        for item in shown:
            style = "--" if item == self.baseline else "-"
            totals = [item.total_us_of(count) / 1e6 for count in counts]
            ax.plot(counts, totals, style, label=item.candidate)
        ax.axvline(max(self.spmvs, 1), color="gray", linewidth=0.8)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("products")
        ax.set_ylabel("conversion and products [s]")
        ax.legend()
        return ax


def axes(ax: Axes | None) -> Axes:
    """Return the axes, or new ones if there are none."""
    if ax is not None:
        return ax
    # Only plots need matplotlib.
    import matplotlib.pyplot as plt

    return plt.subplots()[1]


def time_text(us: float) -> str:
    """Return microseconds with three digits and a unit."""
    for limit, factor, unit in ((1e3, 1.0, "us"), (1e6, 1e-3, "ms")):
        if us < limit:
            return f"{us * factor:.3g} {unit}"
    return f"{us * 1e-6:.3g} s"
