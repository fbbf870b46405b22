"""Statistics of runs that differ in their seed: paired differences, t intervals, verdicts."""
import math
import statistics

CONFIDENCE = 0.9


def t_probability(t, freedom):
    """P(|T| < t) of Student's distribution with a whole number of degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for power in range(2 + odd, freedom + 1, 2):  # terms cos, 2/3 cos³, 2·4/(3·5) cos⁵ …; 1, 1/2 cos², 1·3/(2·4) cos⁴ …
        total += term
        term *= cosine ** 2 * (power - 1) / power
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def t_quantile(freedom, confidence=CONFIDENCE):
    """t with P(|T| < t) = confidence."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def summary(values):
    """Mean, sd, standard error and 90 % t interval of the mean; the last three are None for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return {"n": len(values), "mean": mean, "sd": None, "standard_error": None, "interval": None}
    deviation = statistics.stdev(values)
    error = deviation / math.sqrt(len(values))
    half = t_quantile(len(values) - 1) * error
    return {"n": len(values), "mean": mean, "sd": deviation, "standard_error": error, "interval": [mean - half, mean + half]}


def paired(baseline, other):
    """Statistics of other minus baseline, two dicts {seed: value}, over their common seeds; also the signs, and the seeds left out."""
    seeds = sorted(set(baseline) & set(other))
    unpaired = sorted(set(baseline).symmetric_difference(other))
    if not seeds:
        return {"seeds": [], "unpaired_seeds": unpaired}
    differences = [other[seed] - baseline[seed] for seed in seeds]
    return {"seeds": seeds, "unpaired_seeds": unpaired, **summary(differences), "lower": sum(one < 0 for one in differences),
            "higher": sum(one > 0 for one in differences), "differences": differences}


def verdict(interval, low=None, high=None):
    """`holds` if the interval is inside the open range (low, high), `fails` if it is outside, otherwise `too small`.
    The claim "lower" has the range (-inf, 0), "no gain" one around 0. Without an interval (one seed) the verdict is `too small`; also for an interval
    of zero width on a limit, as equal values of coarse shares, such as 3 of 6 heads in each seed, are on neither side."""
    if interval is None or interval[0] == interval[1] in (low, high):
        return "too small"
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if low < interval[0] and interval[1] < high:
        return "holds"
    return "fails" if interval[1] <= low or interval[0] >= high else "too small"
