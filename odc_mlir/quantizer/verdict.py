"""The verdict over a quantised model: measures, and a table of checks with severities and texts.

The status follows from the severities of the findings (:func:`odc_mlir.quantizer.policy.verdict.make_verdict`). Checks
of inputs that make quantising pointless raise errors before the search and are not in the table.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odc_mlir.calibration.copies import stratified
from odc_mlir.calibration.recorded import unreal_inputs
from odc_mlir.formats.quantities import listed, quality_text
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.evaluator import wilson
from odc_mlir.quantizer.execution import float_names, same_inputs
from odc_mlir.quantizer.layers import UNIT_NAMES, leaked
from odc_mlir.quantizer.measurement import Measurement, lost_places
from odc_mlir.quantizer.models import Candidate, Recipe, float_reasons, layer_names
from odc_mlir.quantizer.outputs import Interval, lost_output_text, one_sided, remedy_of_guess, unreached
from odc_mlir.quantizer.policy import verdict as rules
from odc_mlir.quantizer.policy.declarations import FITTED, INPUTS, OFF, ON, OUTPUTS, RANGE
from odc_mlir.quantizer.policy.options import Options, overrides_text
from odc_mlir.quantizer.policy.readers import WIDE_WEIGHTS
from odc_mlir.quantizer.policy.schemes import FLOAT, NARROW, NARROWER, with_wide_weights
from odc_mlir.quantizer.policy.verdict import DOUBT, NOTE, OPEN, PROBLEM, R2_LIMIT
from odc_mlir.quantizer.precisions import PrecisionSearch, Tried
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import FEWEST_TO_SPLIT
from odc_mlir.quantizer.states import DECLARED, like_states
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.scores import never_answered, recall_findings
from odc_mlir.transforms.quant.quant_normalize_outputs import NORMALISED

# Minimum share of samples for which the float model has finite outputs: below it, measures describe a minority.
LEAST_MEASURED = 0.5


class JudgedCandidate:
    """A candidate with all measurements, for the checks and the verdict."""

    def __init__(self, driver: Driver, candidate: Candidate) -> None:
        self.driver, self.candidate = driver, candidate
        self.evaluator = evaluator = driver.evaluator
        self.options, self.data, self.reference = driver.options, driver.data, driver.reference
        self.measured: Measurement = evaluator.measured_unseen(candidate)
        self.metrics = evaluator.measures(candidate)
        self.examination = evaluator.examination(candidate.model)
        self.layers = self.examination.layers(candidate.graph)
        weights = self.examination.weights()
        for layer in self.layers:
            if not weights.get(layer["name"]):
                layer["scheme"] = evaluator.precision_name(layer["scheme"])
        self.coverage, self.intervals = evaluator.coverage(candidate), evaluator.intervals(candidate)
        self.missed = [limit for limit in evaluator.limits if not limit.holds(self.metrics)]
        # Limits that hold, but that too few samples confirm.
        self.doubtful = evaluator.doubtful(candidate, self.metrics)
        self.names = self.reference.names
        # Share of the scores of each SOFTMAX at positions where the float model has zeros.
        self.leaked = leaked(self.reference.graph, candidate.graph, self.data.held)
        # Inputs that are equal in all samples although outputs depend on these inputs.
        every = [*self.data.fit, *self.data.held]
        self.same_inputs = [] if self.data.made_up else same_inputs(self.reference.graph, every)

    @cached_property
    def itself(self) -> Measurement:
        """Measures of the candidate on all samples, including the samples that determined ranges."""
        return self.evaluator.measured_itself(self.candidate)

    @cached_property
    def placement(self) -> dict[str, Any]:
        """Shares of multiplications on the target, layers on the host, and the time, or {} if there is no target."""
        target, module = self.evaluator.target, self.candidate.module
        if target is None:
            return {}
        plan, placed = target.judge(module, plan=True), target.judge(module)
        graph, known = self.candidate.graph, {info.name: i for i, info in enumerate(self.candidate.model.graph.tensors)}
        names = {graph.tensors[index].name: name for index, name in float_names(graph, known).items()}
        time, possible = target.time(module, compiled=self.options.max_time_ms is not None), self.evaluator.possible
        return {
            "name": target.name,
            "runs": placed.share(),
            "runs_of_possible": None if possible is None else placed.share(possible),
            "planned": plan.share(),
            "time_ns": time.ns,
            "modelled": time.modelled,
            "float_ns": target.host_ns(self.evaluator.base.module),
            "on_host": [found | {"name": names.get(found["name"], found["name"])} for found in plan.on_host()],
        }

    @cached_property
    def helped(self) -> dict[str, list[float | None]]:
        """Score (or share of equal answers) and SQNR, before and after help, on the held-out samples."""
        plain, evaluator, reference = self.driver.plain, self.evaluator, self.evaluator.reference
        if plain is None or plain.recipe == self.candidate.recipe or self.data.made_up:
            return {}
        both = [evaluator.measured(each) for each in (plain, self.candidate)]
        metrics = [reference.metrics(each) for each in both]
        score, found = self.reference.metric or "top1_decided", dict[str, list[float | None]]()
        for measured, measures in zip(both, metrics, strict=True):
            if measured.scored is not None:
                measures[score] = measured.scored.after[score]
            for name in (score, "sqnr_db"):
                found.setdefault(name, []).append(measures.get(name))
        return found

    @cached_property
    def inherent(self) -> Mapping[str, bool]:
        """Limits missed on calibration samples as well, by key."""
        if not self.missed or (self.data.separate and self.data.held is not self.data.fit):
            return {}
        metrics = self.reference.metrics(self.itself)
        return {limit.key: not limit.holds(metrics) for limit in self.evaluator.limits}

    @property
    def misses_own_limits(self) -> bool:
        """True if a limit other than R² of nearly constant outputs is missed."""
        return any(limit is not R2_LIMIT for limit in self.missed)

    @property
    def holds(self) -> bool:
        """True if all limits hold, enough samples confirm all limits, and outputs lack no numbers."""
        return not (self.missed or self.doubtful or self.measured.lacking)

    @cached_property
    def lost_outputs(self) -> tuple[list[str], bool]:
        """Texts about outputs no better than a constant, and whether other samples might show more."""
        texts, lacking = list[str](), list[bool]()
        lost = lost_places(self.measured)
        for place in lost:
            varies_by = self.reference.varies_slightly(place)
            known, shares = not R2_LIMIT.allows(self.itself.r2[place] or 0.0), self.reference.are_shares(place)
            texts.append(lost_output_text(self.names[place], varies_by=varies_by, are_shares=shares, known=known))
            lacking.append(varies_by is not None or not known)
        for place, errors in enumerate(self.measured.outputs):
            if place not in lost and errors.sqnr_db is not None and errors.sqnr_db <= 0.0:
                seen = quality_text("sqnr_db", errors.sqnr_db)
                texts.append(f"the SQNR of output {self.names[place]!r} is {seen}: zeros would be as accurate")
                lacking.append(False)
        return texts, bool(lacking) and all(lacking)

    @cached_property
    def silent(self) -> tuple[list[str], list[str]]:
        """Texts about constant outputs and lost columns: texts that fail the model, and notes."""
        problems, notes = list[str](), list[str]()
        for place, may_be in () if self.reference.constant else self.reference.untold():
            count = len(self.reference.samples)
            text = f"output {self.names[place]!r} is the same for all {count} samples, so its accuracy is unknown"
            (notes if may_be else problems).append(text if may_be else f"{text}: give samples for which it varies")
        known = lost_places(self.measured)
        for place, every in enumerate(self.itself.lost):
            if place not in known:
                failing = problems if self.reference.has_own_columns(place) else notes
                failing.extend(lost.text(self.names[place]) for lost in every)
        return problems, notes

    @property
    def constants_keep_limits(self) -> list[str]:
        """The text for samples on which constant outputs would keep the limits."""
        if self.evaluator.outputs_vary:
            return []
        reach = max((np.abs(v).max(initial=0.0) for s in self.data.held for v in s if v.dtype.kind == "f"), default=0.0)
        known = f"{rules.KEPT_BY_CONSTANTS} on these samples, in which inputs reach {reach:.3g}"
        if R2_LIMIT in self.missed:
            return [f"{known}, and the quantised outputs miss R²; {rules.VARY_MORE}"]
        return [f"{known}; give samples for which outputs vary more, in the unit of training, or a limit"]

    @cached_property
    def over_budget(self) -> list[str]:
        """The text for a file that is larger, or an inference that is slower, than the budget."""
        options = self.options
        if not self.evaluator.over_budget(self.candidate):
            return []
        if options.max_bytes is not None:
            return [f"the file has {self.evaluator.size(self.candidate):,} bytes; the limit is {options.max_bytes:,}"]
        time = f"{rules.time_text(self.placement['time_ns'])} ({rules.how_known(self.placement)})"
        return [f"an inference takes {time}; the limit is {options.max_time_ms:g} ms"]

    @property
    def are_informative(self) -> bool:
        """True if a missed limit on these samples counts, because other samples would not change the result."""
        if self.reference.constant:
            return False
        missed = [limit for limit in self.missed if limit is not R2_LIMIT]
        if 1 < self.reference.measurable < FEWEST_TO_SPLIT:  # more samples may meet a limit within its interval
            missed = [limit for limit in missed if not any(map(limit.allows, self.intervals.get(limit.key, ())))]
        little = self.constants_keep_limits or self.silent[0] or self.lost_outputs[1]
        return bool(missed) or not (self.misses_own_limits or self.doubtful or little)

    @cached_property
    def front(self) -> list[dict[str, Any]]:
        """Measured models with other precisions: accuracy, time and bytes. Empty if there was no search."""
        search, target = self.driver.precision_search, self.evaluator.target
        if search is None:
            return []
        shown = dict.fromkeys([*(limit.key for limit in self.evaluator.limits), "sqnr_db"])
        points: list[dict[str, Any]] = []
        for tried in _spread(search):
            time = search.time(tried)
            # Cross-validation takes long: it quantises a model again for each fold.
            is_confirmed = tried is search.chosen or search.is_known(tried)
            holds = search.confirmed(tried) if is_confirmed else tried.holds(search.limits)
            points.append(
                {
                    "layers": len(tried.precisions),
                    "precisions": dict(tried.precisions),
                    "time_ns": None if time is None else time.ns,
                    "modelled": time is not None and time.modelled,
                    "bytes": self.evaluator.size(tried.candidate),
                    "runs": None if target is None else target.judge(tried.candidate.module).share(),
                    "share": self.evaluator.share(tried.candidate),
                    "search": {metric: tried.measures.get(metric) for metric in shown},
                    "holds": self.holds if tried is search.chosen else holds,
                    "confirmed": is_confirmed,
                    "chosen": tried is search.chosen,
                }
            )
        return points

    def least_cost(self) -> dict[str, Any]:
        """Return the least bytes or time of models within the limits, else of all. ``tight``: more would help."""
        search, candidate, target = self.driver.precision_search, self.candidate, self.evaluator.target
        holds, tight = self.holds and not (self.silent[0] or self.counted_lost), False
        if search is not None:
            candidate, holds = search.least(candidate, holds=holds)
            tight = search.is_tight
        if self.options.max_bytes is not None:
            return {"bytes": self.evaluator.size(candidate), "holds": holds, "tight": tight}
        assert target is not None
        time = target.time(candidate.module, compiled=True)
        return {"time_ns": time.ns, "modelled": time.modelled, "holds": holds, "tight": tight}

    @cached_property
    def states(self) -> dict[str, Any] | None:
        """The states of the model, and errors by frame number in the sequence, or None if it has no states."""
        rollout, results = self.data.rollout, self.measured.results
        if rollout is None:
            return None
        return {
            "pairs": self.options.states,
            "known": rollout.how,
            "sequences": rollout.steps.count(0),
            "frames_per_sample": rollout.each,
            "steps": rollout.by_step(self.reference.samples, results.signal, results.noise),
        }

    @cached_property
    def doubts_of_states(self) -> dict[str, str]:
        """Reasons why samples do not show the errors of states in use, each with a remedy."""
        if self.states is not None:
            assert self.data.rollout is not None
            # Only hundreds of samples can confirm a limit on the share of equal answers.
            open_ones = [limit for limit in self.evaluator.limits if limit.metric not in rules.OF_ANSWERS]
            return self.data.rollout.doubts(self.states["steps"], self.metrics["sqnr_db"]) | {
                f"over other sequences, {rules.spoken_name(limit.name)} may miss its limit": "give longer sequences"
                for limit in open_ones
                if limit.key in self.intervals and limit.holds(self.metrics)
                if not limit.is_certain(self.metrics, self.intervals)
            }
        if self.data.made_up or self.options.states is not None:
            return {}
        reference = self.reference
        return {
            f"output {pair.output!r} may be the next input {pair.input!r}": (
                f"declare it by --state {pair}, for a verdict over sequences of samples, or --state none"
            )
            for pair in like_states(reference.graph, reference.samples, reference.outputs)
        }

    @property
    def over_sequences_db(self) -> Interval | None:
        """Interval of SQNR over sequences if an end is far from the measured SQNR, otherwise None."""
        most_db = 3.0  # half a bit
        seen = self.metrics["sqnr_db"] or 0.0
        low, high = found = self.intervals.get("sqnr_db", (seen, seen))
        return found if self.states is not None and max(seen - low, high - seen) > most_db else None

    @property
    def counted_lost(self) -> list[str]:
        """Texts about lost outputs, which decide if no other limit is missed."""
        return [] if self.misses_own_limits else self.lost_outputs[0]


def _spread(search: PrecisionSearch) -> list[Tried]:
    most_points = 6  # with a budget, each point needs a plan of the partitioner
    ordered = sorted(search.tried.values(), key=lambda item: len(item.precisions))
    shown = [ordered[round(place)] for place in np.linspace(0, len(ordered) - 1, most_points)] if ordered else []
    return [item for item in ordered if item is search.chosen or item in shown]


# Checks, which yield a text for each finding.


def _few_samples(o: JudgedCandidate) -> Iterator[str]:
    count, given, data = o.reference.measurable, o.data.known, o.data
    is_half = not (o.evaluator.has_judges or (data.separate and data.held is not data.fit))  # held back for the check
    least = 2 * FEWEST_TO_SPLIT if is_half else FEWEST_TO_SPLIT
    is_all = data.separate or given == count
    of = "" if is_all else f" ({given} were given, and {count} of them held back for the check)"
    for limit in o.doubtful:
        low, high = (quality_text(limit.metric, end) for end in o.intervals[limit.key])
        yield (
            f"{count} samples are too few: {limit.name} is within its limit on them, but its 95 % confidence interval "
            f"is {low} to {high}; give {least} or more{of}"
        )


def _one_sample(o: JudgedCandidate) -> Iterator[str]:
    count = len(o.reference.samples)
    if o.reference.constant:
        why = "there is only one sample" if count == 1 else f"the outputs are the same for all {count} samples"
        yield f"the accuracy cannot be measured: {why}"
    elif count == 1:
        of_both = o.data.held is o.data.fit
        what = "the ranges were chosen and the model was checked" if of_both else "the model was checked"
        yield f"{what} on a single sample: the accuracy on others is unknown"


def _usual_samples(o: JudgedCandidate) -> Iterator[str]:
    """Yield a text for a limit that is missed on the samples with far smaller inputs than the others."""
    usual, far, most, most_named = o.data.usual, o.data.stands_out, 16, 5
    # Few small samples may be, for example, black pictures, whose outputs hardly vary.
    if not far or o.data.rollout is not None or len(usual) < max(2, (len(usual) + len(far)) / 10):
        return
    held = set(map(id, o.data.held))  # codes of weights are not refined by these samples
    shown = [sample for sample in usual if id(sample) in held] or usual
    chosen = stratified(min(most, len(shown)), len(shown))
    reference = Reference(o.reference.graph, [shown[i] for i in chosen], like=o.reference)
    found = reference.metrics(reference.measure(o.candidate.graph))
    missed = [limit.metric for limit in o.evaluator.limits if limit.key in found and not limit.holds(found)]
    if missed and not reference.constant:
        numbers = ", ".join(map(str, far[:most_named])) + ", …" * (len(far) > most_named)
        what = f"{rules.spoken_name(missed[0])} misses its limit: check the units of inputs"
        yield f"samples {numbers} have far larger inputs than all others, on which {what}"


def _low_coverage(o: JudgedCandidate) -> Iterator[str]:
    evaluator, scheme, found, most_named = o.evaluator, o.options.scheme, o.coverage, 5
    # With a budget, all types within the budget are allowed.
    others = (NARROWER.get(scheme, scheme), *with_wide_weights(scheme)[:-1])
    least = f"the minimum is {100 * evaluator.min_coverage:g} %"
    reasons = float_reasons(o.candidate.module).values()
    remedy = f"; {WIDE_WEIGHTS}: write a .circle file" if WIDE_WEIGHTS in reasons else ""
    if found.computing.isdisjoint((scheme, *(others if o.options.has_budget else ()))):
        moving = scheme in found.by_precision
        yield f"{'only operators that move values are' if moving else 'nothing is'} quantised to {scheme}{remedy}"
    elif evaluator.target is not None and evaluator.scheme_is_taken:
        share = o.placement["runs_of_possible"]
        if share is None:
            yield f"{evaluator.target.name} can run no layer of the model"
        elif share < evaluator.min_coverage:
            assert evaluator.plain is not None
            assert evaluator.possible is not None
            names = layer_names(o.candidate.model.module)
            runs = zip(names, evaluator.possible, evaluator.plain.taken(), strict=True)
            left = [name for name, may_run, does in runs if may_run and not does]
            if left and not remedy:
                narrow = shlex.quote(overrides_text(dict.fromkeys(left[:most_named], NARROW)))
                more = f" and {len(left) - most_named} more layers" if len(left) > most_named else ""
                remedy = f"; to run more, give --overrides {narrow} (in Python overrides){more}"
            text = f"{evaluator.target.name} runs {100 * share:.1f} % of the products that it could run"
            yield f"{text}; {least}{remedy}"
    elif (share := found.share()) is None or share < evaluator.min_coverage:
        text = "none" if share is None else f"{100 * share:.1f} %"
        yield f"{text} of the {UNIT_NAMES[found.unit]} are quantised; {least}{remedy}"


def _leaked_attention(o: JudgedCandidate) -> Iterator[str]:
    # Largest share of SOFTMAX scores at positions where the float model has exact zeros, such as masked positions: an
    # attention row keeps at least 99.5 % of its weight.
    most_leaked = 0.005
    name = next((name for name, share in o.leaked.items() if share > most_leaked), None)
    if name is not None:
        yield f"SOFTMAX {name!r} puts {100 * o.leaked[name]:.1f} % of its sum where the float model has (masked) zeros"


def _not_finite(o: JudgedCandidate) -> Iterator[str]:
    every, told = len(o.reference.samples), o.reference.measurable
    if o.measured.lacking:
        yield (
            f"outputs of the quantised model are not finite for {o.measured.lacking} of {every} samples: they count "
            "as zeros"
        )
    if o.measured.exceeding:
        yield f"{o.measured.exceeding} of {every} samples have finite outputs in the quantised model only"
    if told < LEAST_MEASURED * (every + o.data.left_out):
        yield (
            f"the float model has finite outputs for only {told} of {every + o.data.left_out} samples, too few for a "
            "verdict: give samples for which its outputs are finite"
        )


def _partly_finite(o: JudgedCandidate) -> Iterator[str]:
    told, every = o.reference.measurable, len(o.reference.samples) + o.data.left_out
    if LEAST_MEASURED * every <= told < every:
        yield (
            f"accuracy was measured on {told} of {every} samples: for the others, outputs of the float model are not "
            "finite"
        )


def _guessed_scores(o: JudgedCandidate) -> Iterator[str]:
    """Yield texts for missed limits on classes if the output may hold numbers."""
    reference = o.reference
    known = {0} if reference.labels is not None else set[int]()
    for place in sorted(reference.logits - known) if o.options.metric is None else ():
        name = o.names[place]
        is_missed = any(limit.metric == "top1_decided" and limit.output in (None, name) for limit in o.missed)
        if is_missed and place not in reference.doubts_of_scores:
            remedy = remedy_of_guess(place == 0)
            yield f"output {name!r} is treated as class scores; if it holds other numbers, {remedy} --metric mpeir"


def real_ends(options: Options, graph: Graph) -> Iterator[str]:
    """Yield a text for inputs and outputs that stay float although a quantised type is requested."""
    ends = {"input": (graph.input_infos(), options.input_types), "output": (graph.output_infos(), options.output_types)}
    kept = {
        kind: [
            repr(info.name)
            for info in infos
            if info.dtype == "float32" and given.get(info.name, given.get("", options.io)) != FLOAT
        ]
        for kind, (infos, given) in ends.items()
    }
    texts = [f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}" for kind, names in kept.items() if names]
    if texts:
        stay, them = ("stay", "them") if sum(map(len, kept.values())) > 1 else ("stays", "it")
        why = f"layers that read or compute {them} are not quantised"
        yield f"{' and '.join(texts)} {stay} float although a quantised type was requested: {why}"


def _search_in_vain(o: JudgedCandidate) -> Iterator[str]:
    search = o.driver.precision_search
    has_tried = search is not None and search.chosen is not None and not o.evaluator.is_cut_short
    if has_tried and not o.evaluator.keeps_limits(o.candidate):
        yield "no choice of precisions that is allowed meets the limits"


def _states(o: JudgedCandidate) -> Iterator[str]:
    if o.states is None:
        yield from _unshown_states(o)
    elif o.states["known"] != DECLARED:
        for output, input in o.states["pairs"].items():
            how = o.states["known"]
            yield f"output {output!r} is the next input {input!r} (found {how}); if this is wrong, give --state none"


def _unshown_states(o: JudgedCandidate) -> Iterator[str]:
    yield from (f"{doubt}: {remedy}" for doubt, remedy in o.doubts_of_states.items())


def _classes(o: JudgedCandidate) -> Iterator[str]:
    reference = o.reference
    for place, name in enumerate(o.measured.names):
        is_guess = place in reference.logits and all(
            limit.metric not in rules.OF_ANSWERS for limit in o.evaluator.limits
        )
        if reference.classifies(place) and place not in reference.equalities and not (o.data.made_up or is_guess):
            scores = [outputs[place] for outputs in reference.outputs]
            missing = never_answered(name, scores, reference.classes[place] or scores[0].size)
            yield from [] if missing is None else [missing]
    if reference.metric == "top1_percent" and all(limit.metric in rules.OF_LABELS for limit in o.evaluator.limits):
        for name, r2 in zip(o.measured.names, o.measured.r2, strict=True):
            if r2 is not None and not R2_LIMIT.allows(r2):
                yield (
                    f"the values of output {name!r} are far from the float model's (R² {r2:.2f}): labels check only "
                    "which class is the largest; rely on nothing else of it, or give --metric r2"
                )


@dataclass(frozen=True, slots=True)
class VerdictCheck:
    """A row of the findings table: severity, and the function that yields texts of findings."""

    name: str
    severity: str
    texts: Callable[[JudgedCandidate], Iterable[str]]


CHECKS = (
    VerdictCheck("found before and during the search", NOTE, lambda o: o.driver.findings),
    VerdictCheck(
        "search cut short",
        NOTE,
        lambda o: (
            [f"not all improvements were tried within {o.options.max_seconds:g} s (--max-seconds)"]
            if o.evaluator.is_cut_short
            else ()
        ),
    ),
    VerdictCheck("outputs taken for scores", NOTE, _guessed_scores),
    VerdictCheck("real inputs and outputs", NOTE, lambda o: real_ends(o.options, o.candidate.graph)),
    VerdictCheck(
        "inputs that never vary",
        NOTE,
        lambda o: (
            f"input {name!r} never varies, but outputs depend on it: give samples in which it varies as in use"
            for name in o.same_inputs
        ),
    ),
    VerdictCheck("search in vain", NOTE, _search_in_vain),
    VerdictCheck("constant outputs that may be constant", NOTE, lambda o: o.silent[1]),
    VerdictCheck("lost outputs beside missed limits", NOTE, lambda o: o.lost_outputs[0] if o.misses_own_limits else ()),
    VerdictCheck("states", NOTE, _states),
    VerdictCheck("states in use", OPEN, lambda o: () if o.states is None else _unshown_states(o)),
    VerdictCheck("recall of classes", NOTE, lambda o: recall_findings(o.measured.recalls)),
    VerdictCheck("classes without samples", NOTE, _classes),
    VerdictCheck("samples without float outputs", NOTE, _partly_finite),
    VerdictCheck("limits kept by constants", NOTE, lambda o: () if o.missed == [R2_LIMIT] else o.constants_keep_limits),
    VerdictCheck("one sample", PROBLEM, _one_sample),
    VerdictCheck("samples with far larger inputs", PROBLEM, _usual_samples),
    VerdictCheck("coverage", PROBLEM, _low_coverage),
    VerdictCheck("masked positions", PROBLEM, _leaked_attention),
    # Reported only if no other limit is missed.
    VerdictCheck("lost outputs", PROBLEM, lambda o: () if o.data.made_up else o.counted_lost),
    VerdictCheck("silent outputs", PROBLEM, lambda o: o.silent[0]),
    VerdictCheck(
        "only R² missed",
        PROBLEM,
        lambda o: o.constants_keep_limits if o.missed == [R2_LIMIT] and not o.counted_lost else (),
    ),
    VerdictCheck("numbers that are missing", PROBLEM, _not_finite),
    VerdictCheck("scores on one side of a half", PROBLEM, lambda o: unreached(o.candidate.graph)),
    VerdictCheck("budget", PROBLEM, lambda o: o.over_budget),
    VerdictCheck("few samples", DOUBT, _few_samples),
)


_SEARCHED = "the search for precisions chose float"


def verdict_of(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    """Return the verdict, a dictionary for JSON (see docs/quantisation.md)."""
    outcome, reasons = JudgedCandidate(driver, candidate), float_reasons(candidate.module)
    chosen = {name for name, choice in candidate.recipe.precisions if choice.precision == FLOAT}
    coverage = outcome.coverage.to_dict() | {"least": driver.evaluator.min_coverage, "leaked_attention": outcome.leaked}
    if outcome.placement:
        coverage["target"] = outcome.placement
    if outcome.over_budget or (outcome.missed and driver.options.has_budget):
        coverage["budget"] = outcome.least_cost()
    return rules.make_verdict(
        driver.evaluator.limits,
        outcome.metrics,
        outputs=_outputs(driver.reference, outcome.measured),
        scores=_scores(driver, outcome.measured),
        layers=outcome.layers,
        scheme={layer["name"]: layer["scheme"] for layer in outcome.layers},
        float_reasons=reasons | dict.fromkeys(reasons.keys() & chosen - driver.fixed.keys(), _SEARCHED),
        samples=_samples(outcome),
        saturated_biases=saturated_biases(candidate.graph),
        findings=[(check.severity, text) for check in CHECKS for text in check.texts(outcome)],
        steps=driver.evaluator.steps,
        choices=_choices(driver, candidate),
        coverage=coverage,
        intervals=outcome.intervals,
        inherent=outcome.inherent,
        front=outcome.front,
        made_up=driver.data.made_up,
        seen=driver.data.seen,
        help=outcome.helped,
        **({} if outcome.states is None else {"states": outcome.states}),
    )


def _samples(outcome: JudgedCandidate) -> dict[str, Any]:
    driver, data, base, reference = outcome.driver, outcome.data, outcome.driver.base, outcome.reference
    inputs = [(0, info.name) for info in base.graph.input_infos() if info.info.kind == "float"]
    return {
        "chosen_by": data.known,
        "checked_on": reference.measurable,
        "outputs_vary": driver.evaluator.outputs_vary,
        "made_up": data.made_up,
        "ranges_cover": not (data.separate or driver.options.definition.weights_only),
        "same_inputs": list(outcome.same_inputs),
        "unreal_inputs": unreal_inputs(base.records, inputs),
        "one_sided": one_sided(base.graph, base.complete),
        "other_units": list(driver.differing_units),
        "labels_tell": None if reference.labels is None else reference.misfit is None,
        "telling": outcome.are_informative,
        "layers_examined_on": outcome.examination.samples,
        **({"doubts_of_states": list(outcome.doubts_of_states)} if outcome.doubts_of_states else {}),
        **({} if (found := outcome.over_sequences_db) is None else {"over_sequences_db": found}),
    }


def _outputs(reference: Reference, measured: Measurement) -> list[dict[str, Any]]:
    every = zip(measured.names, measured.outputs, measured.r2, strict=True)
    return [
        {
            "name": name,
            **asdict(errors),
            "r2": r2,
            "interval": reference.spans[place],
            "classifies": reference.classifies(place),
            "classes": reference.classes[place] if reference.classifies(place) else None,
            "equality": place in reference.equalities,
        }
        for place, (name, errors, r2) in enumerate(every)
    ]


def _scores(driver: Driver, measured: Measurement) -> dict[str, Any] | None:
    """Return the scores of the two models, or of the column that loses most if columns are scored separately."""
    all_before, scored = driver.reference.scores, measured.scored
    if all_before is None or scored is None:
        return None
    worst = scored.worst
    before, after = (all_before, scored.after) if worst is None else (worst.before, worst.after)
    metric = next(iter(before))
    result: dict[str, Any] = {"metric": metric, "float": before[metric], "quantized": after[metric]}
    if metric == "top1_percent":  # a share of the samples
        count = len(driver.reference.samples)
        result["intervals"] = {
            side: [100.0 * end for end in wilson(result[side] / 100.0, count)] for side in ("float", "quantized")
        }
    result |= scored.parts()
    others = {name: [before[name], after[name]] for name in before if name != metric}
    classes = [item.to_dict() for item in measured.recalls]
    return result | ({"others": others} if others else {}) | ({"classes": classes} if classes else {})


def _choices(driver: Driver, candidate: Candidate) -> dict[str, Any]:
    scheme, recipe = driver.options.definition, candidate.recipe
    result: dict[str, Any] = {"scheme": scheme.name, "granularity": scheme.granularity, "io": driver.options.io}
    for name in ("input_types", "output_types", "parameters", "copied_parameters"):
        if given := getattr(driver.options, name):
            result[name] = dict(given)
    result |= {"help": driver.options.help, "rounding": recipe.rounding, "correction": recipe.correction}
    if scheme.weights_only:
        result["scales"] = FITTED if recipe.fitted else RANGE
        if driver.data.fit:  # without samples, only weights decide
            result["normalize"] = _normalized(recipe)
    else:
        result |= {
            "normalize": _normalized(recipe),
            "range_options": dict(recipe.range_options),
            **{name: getattr(recipe, name) for name in ("equalize", "ranges", "headroom", "output_room")},
        }
    known = set(layer_names(driver.base.module))  # before outputs were normalised
    precisions = {name if name in known else name.removesuffix(NORMALISED): of for name, of in recipe.precisions}
    if finer := {name: choice.granularity for name, choice in precisions.items() if choice.granularity is not None}:
        result["granularities"] = finer
    told = ("max_bytes", "max_time_ms", *(("max_seconds",) if driver.evaluator.is_cut_short else ()))
    budgets = {name: getattr(driver.options, name) for name in told}
    result |= {name: budget for name, budget in budgets.items() if budget is not None}
    return result | {"precisions": {name: choice.precision for name, choice in precisions.items()}}


def _normalized(recipe: Recipe) -> str:
    return {(False, False): OFF, (True, False): INPUTS, (False, True): OUTPUTS, (True, True): ON}[
        recipe.normalize, recipe.normalize_outputs
    ]


def saturated_biases(graph: Graph) -> dict[str, list[int]]:
    """Return the channels of biases with codes at a limit of the type, by tensor name."""
    result: dict[str, list[int]] = {}
    for info in graph.tensors:
        if info.is_const and info.quant is not None and info.dtype in ("int32", "int64"):
            low, high = info.info.range
            codes = info.array().reshape(-1)
            if (channels := np.flatnonzero((codes == low) | (codes == high))).size:
                result[info.name] = channels.tolist()
    return result
