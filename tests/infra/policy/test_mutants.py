"""Every rule catches its mutants of the committed stacks, and no other rule does."""

from __future__ import annotations

from collections import Counter

import pytest

from infra.policy import pack
from infra.policy.rules import ResourceRule
from tests.campaign import mutants
from tests.infra.cloud_declared import STACKS
from tests.infra.policy.judging import broken, declared
from tests.infra.policy.written import mutants_of
from tests.infra.policy.wrong_values import COMPANIONS

# The fewest that a rule is tried with on a stack that it is for.
FEWEST = 2


@pytest.mark.parametrize("stack", STACKS)
def test_each_mutant_is_caught_by_its_rule_and_only_companions(stack):
    whole = declared(stack)
    assert broken(whole) == set()
    wrong: list[str] = []
    tried: Counter[str] = Counter()
    of_resource: Counter[tuple[str, str]] = Counter()
    caught = 0
    for rule in pack.RULES:
        for mutant in mutants_of(rule, whole) if whole.stage in rule.stages else ():
            fired = broken(mutant.stack, mutant.changed)
            others = fired - {rule.name} - COMPANIONS.get(rule.name, frozenset())
            tried[rule.name] += 1
            of_resource[rule.name, mutant.changed.urn if mutant.changed else ""] += 1
            caught += rule.name in fired
            if rule.name not in fired or others:
                wrong.append(f"{rule.name}: {mutant.title}: {sorted(fired)}")
    rules = [each.name for each in pack.RULES if whole.stage in each.stages]
    mutants(
        f"policy pack on {stack}: {len(rules)} of {len(pack.RULES)} rules",
        planted=tried.total(),
        caught=caught,
    )
    assert wrong == []
    assert [name for name in rules if tried[name] < FEWEST] == []
    on_a_property = [each for each in pack.RULES if isinstance(each, ResourceRule) and each.path]
    assert [
        (rule.name, resource.name)
        for rule in on_a_property
        if whole.stage in rule.stages
        for resource in whole.of(*rule.types)
        if of_resource[rule.name, resource.urn] < FEWEST
    ] == []
