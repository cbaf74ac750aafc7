"""Why a demand found nothing to buy: for every NodePool the one thing that stood in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodesmith.decisions.provisioning.market import limit_cost
from nodesmith.decisions.scheduling.admission import Admission
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.templates import Choice, Template
from nodesmith.model.labels import ZONE
from nodesmith.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Resources, format_amount
from nodesmith.model.shapes import Shape

_MOST_SHOWN = 3
_TYPO_CPU_MILLI = 1_000_000_000  # a million cores: somebody meant milli-cores or bytes


def refusal(
    demand: Demand,
    templates: Sequence[Template],
    obstacles: Mapping[str, str],
    tried: Mapping[tuple[Shape, str | None, str], str],
) -> str:
    """Give the reason for pods that stay: NodePool by NodePool, in order of weight.

    `tried` is what refused a purchase, by shape, zone and NodePool.
    """
    if not templates and not obstacles:
        return "there is no NodePool"
    parts = [
        f"NodePool {t.name}: {tried.get((demand.shape, demand.zone, t.name)) or _template_refusal(demand, t)}"
        for t in templates
    ]
    parts += [f"NodePool {name}: {why}" for name, why in obstacles.items()]
    return "; ".join(parts) + _by_volumes(demand.shape) + _typo(demand.shape.requests)


def _template_refusal(demand: Demand, template: Template) -> str:
    admission = Admission(template, (demand,))
    if admission.refusals:
        return admission.refusals[0]
    admitted = [c for c in template.choices if any(admission.mask(c, o) for o in c.offerings)]
    if not admitted and admission.port_holders:
        return f"{admission.port_holders[0].owner} uses the pods' host port on every node that would do"
    if not admitted:
        return f"no instance type with an offering left{_where(demand)} has what the pods select"
    fitting = [c for c in admitted if demand.shape.requests.fits_in(c.room)]
    if not fitting:
        return _too_large(demand.shape.requests, admitted)
    return _over_limits(demand, fitting, template)


def _where(demand: Demand) -> str:
    """Name the zones that the pods must be in by their spread, selectors or volumes; nothing where others would do."""
    wanted = [term.get(ZONE) for term in demand.shape.terms]
    zones = {zone for one in wanted if one and not one.complement for zone in one.values}
    if demand.zone:
        zones = {demand.zone}
    elif any(one is None or one.complement for one in wanted):
        return ""
    return f" in {' or '.join(sorted(zones))}"


def _too_large(requests: Resources, admitted: Sequence[Choice]) -> str:
    def offered(name: str) -> int:
        return max(c.room.of(name) for c in admitted)

    lacking = [name for name in sorted(requests) if requests[name] > offered(name)]
    if not lacking:
        return f"no instance type offers all that one pod asks for ({_shown(requests)}) at once"
    name = lacking[0]
    largest = max(admitted, key=lambda c: (c.room.of(name), c.type.name))
    return (
        f"one pod asks for {_amount(name, requests[name])} {name}, the most that a node offers to pods is"
        f" {_amount(name, max(0, largest.room.of(name)))} ({largest.type.name})"
    )


def _over_limits(demand: Demand, fitting: Sequence[Choice], template: Template) -> str:
    """Name the limits that stop even one node, and what would be enough for all pods of the demand."""
    limits, left = template.pool.limits, template.remaining
    plain = [c for c in fitting if not c.is_exotic] or fitting
    smallest = {name: min(limit_cost(c, name) for c in plain) for name in sorted(left)}
    stops = [
        f"its limit of {_amount(name, limits.of(name))} {name} is reached"
        f" ({_amount(name, limits.of(name) - left[name])} used, the smallest node that would do takes"
        f" {_amount(name, amount)})"
        for name, amount in smallest.items()
        if amount > left[name]
    ]
    reached = (
        " and ".join(stops) or f"its limits leave no room for a node that would do ({_shown(left)} left)"
    )
    raised = [f"spec.limits.{name} to at least {amount}" for name, amount in _enough(demand, plain, template)]
    pods = "this pod" if len(demand.pods) == 1 else f"these {len(demand.pods)} pods"
    return f"{reached}; for {pods} raise {' and '.join(raised)}" if raised else reached


def _enough(demand: Demand, choices: Sequence[Choice], template: Template) -> list[tuple[str, str]]:
    """Give the limits to raise, and to what, so that all pods find a place on the type that is cheapest for them."""
    requests = demand.shape.requests

    def nodes(choice: Choice) -> int:
        fits = [choice.room.of(name) // amount for name, amount in requests.items() if amount > 0]
        return -(-len(demand.pods) // max(1, min([demand.per_node, *fits])))

    def price(choice: Choice) -> tuple[float, str]:
        return nodes(choice) * choice.offerings[0].price_hourly_usd, choice.type.name

    choice, left = min(choices, key=price), template.remaining
    needed = {name: nodes(choice) * limit_cost(choice, name) for name in sorted(left)}
    return [
        (name, _rounded(name, template.pool.limits.of(name) - left[name] + amount))
        for name, amount in needed.items()
        if amount > left[name]
    ]


def _rounded(name: str, amount: int) -> str:
    """Write an amount that a limit is raised to: bytes in whole GiB, cpu in whole cores."""
    unit = {CPU: 1000, MEMORY: 2**30, EPHEMERAL_STORAGE: 2**30}.get(name, 1)
    return _amount(name, -(-amount // unit) * unit)


def _shown(resources: Resources) -> str:
    return ", ".join(f"{_amount(n, resources[n])} {n}" for n in sorted(resources))


def _by_volumes(shape: Shape) -> str:
    """Say what is not in the pod's own spec, for there it would be looked for in vain."""
    own = {str(one) for term in shape.own_terms for one in term.values()}
    added = sorted({str(one) for term in shape.terms for one in term.values()} - own)
    return f" (for their volumes: {' or '.join(added[:_MOST_SHOWN])})" if added else ""


def _typo(requests: Resources) -> str:
    if requests.cpu_milli >= _TYPO_CPU_MILLI:
        return f" (a cpu request of {_amount('cpu', requests.cpu_milli)} looks like a unit mistake)"
    return ""


def _amount(name: str, amount: int) -> str:
    """Write an amount for a sentence: cpu in cores, so that amounts in one sentence compare."""
    return f"{amount / 1000:.3f}".rstrip("0").rstrip(".") if name == CPU else format_amount(name, amount)
