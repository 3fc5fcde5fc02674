"""Parameters: what a signature declares, what is refused, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest

from zoo.common.schedules import Linear
from zoo.common.tools import params
from zoo.common.tools.params import Param, above, at_least, between, declared


def example(
    fraction: Annotated[float, between(0, 1), 'a part of one'] = 0.9,
    positive: Annotated[float | Linear, above(0), 'scheduled'] = 0.2,
    count: Annotated[int | None, at_least(2)] = None,
    flag: bool = False,
    temperature: Annotated[float | Literal['auto'], above(0)] = 'auto',
    way: Literal['near', 'far'] = 'near',
    entries: Sequence[Any] | None = None,
    *,
    last: Annotated[int, at_least(1)] = 3,
    **others: Any,
) -> None:
    """A function with one of each kind."""


KNOWN = declared(example)


def test_declarations_are_those_of_the_signature():
    assert list(KNOWN) == ['fraction', 'positive', 'count', 'flag', 'temperature', 'way', 'entries', 'last']
    assert [p.kind for p in KNOWN.values()][:6] == ['number', 'number', 'whole', 'flag', 'number', 'choice']
    assert KNOWN['fraction'].default == 0.9 and KNOWN['fraction'].meaning == 'a part of one'
    assert list(declared(example, only_keywords=True)) == ['last']


@dataclass(kw_only=True)
class Way:
    """The keys of a dict."""

    kind: Literal['near', 'far'] = 'near'
    count: Annotated[int, at_least(1)] = 3


@dataclass(kw_only=True)
class Named:
    name: int


def with_a_dict(way: Annotated[dict[str, Any] | None, Way, 'how'] = None, named: Annotated[dict, Named] = {}) -> None:  # noqa: B006
    """A function with parameters that have keys."""


def test_a_dict_has_the_keys_of_a_dataclass():
    way = declared(with_a_dict)['way']
    assert way.kind == 'keys' and way.meaning == 'how' and way.default is None
    assert way.check(None) is None
    assert way.check({'count': 7.0}) == {'kind': 'near', 'count': 7}
    assert way.check({}) == {'kind': 'near', 'count': 3}
    assert way.wanted == "dict(kind='near' or 'far', count=…) or None"
    for given, sentence in (
        ({'knd': 'far'}, "^unknown key of way 'knd': did you mean 'kind'. Known: kind, count.$"),
        ({'kind': 'fr'}, "^unknown kind of way 'fr': did you mean 'far'. Known: near, far.$"),
        ({'count': 0}, r"^way\['count'\] is 0: give a whole number of at least 1.$"),
        (3, '^way is 3: give dict'),
    ):
        with pytest.raises(ValueError, match=sentence):
            way.check(given)
    with pytest.raises(ValueError, match=r"^named lacks 'name': give dict\(name=…\).$"):
        declared(with_a_dict)['named'].check({})


def even(value: Any) -> None:
    if value % 2:
        raise ValueError(f'x is {value}: give an even number.')


def test_a_function_beside_the_meaning_checks():
    def f(x: Annotated[Any, even, 'a number'] = None): ...

    param = declared(f)['x']
    assert (param.meaning, param.check(4), param.check(None)) == ('a number', 4, None)
    with pytest.raises(ValueError, match='x is 3: give an even number'):
        param.check(3)


def test_a_dataclass_declares_its_fields():
    @dataclass(kw_only=True)
    class Some:
        number: int = 1

    assert list(declared(Some)) == ['number'] and declared(Some)['number'].default == 1


@pytest.mark.parametrize(
    ('name', 'given', 'kept'),
    [
        ('fraction', 1, 1),
        ('fraction', np.float32(0.5), 0.5),
        ('positive', Linear(0.2), Linear(0.2)),
        ('count', 1e5, 100_000),
        ('count', np.int64(7), 7),
        ('count', None, None),
        ('flag', np.True_, True),
        ('temperature', 'auto', 'auto'),
        ('temperature', 0.1, 0.1),
        ('way', 'far', 'far'),
        ('entries', 'anything', 'anything'),
    ],
)
def test_what_is_taken_and_as_what(name: str, given: Any, kept: Any):
    found = KNOWN[name].check(given)
    assert found == kept and type(found) is type(kept)


@pytest.mark.parametrize(
    ('name', 'given', 'message'),
    [
        ('fraction', 1.5, 'fraction is 1.5: give a number from 0 to 1.'),
        ('fraction', float('nan'), 'fraction is nan: give a number from 0 to 1.'),
        ('fraction', True, 'fraction is True: give a number from 0 to 1.'),
        ('fraction', '0.5', "fraction is '0.5': give a number from 0 to 1."),
        ('fraction', None, 'fraction is None: give a number from 0 to 1.'),
        ('fraction', Linear(0.5), 'fraction is Linear(start=0.5, end=0.0, until=1.0): give a number from 0 to 1.'),
        ('positive', 0, 'positive is 0: give a number above 0 or a Linear schedule of such.'),
        ('positive', float('inf'), 'positive is inf: give a number above 0 or a Linear schedule of such.'),
        (
            'positive',
            Linear(0.2, -0.1),
            'positive is Linear(start=0.2, end=-0.1, until=1.0): give a number above 0 or a Linear schedule of such.',
        ),
        ('count', 1, 'count is 1: give a whole number of at least 2 or None.'),
        ('count', 2.5, 'count is 2.5: give a whole number of at least 2 or None.'),
        ('flag', 'abc', "flag is 'abc': give True or False."),
        ('flag', 1, 'flag is 1: give True or False.'),
        ('temperature', 'automatic', "temperature is 'automatic': give a number above 0 or 'auto'."),
        ('way', 'nearer', "way is 'nearer': give 'near' or 'far'."),
    ],
)
def test_what_is_refused_and_how(name: str, given: Any, message: str):
    with pytest.raises(ValueError) as info:
        KNOWN[name].check(given)
    assert str(info.value) == message


def test_what_is_said_counts_wherever_it_stands_in_a_hint():
    """Python 3.10 puts ``Optional`` around a hint whose default is None."""

    def wrapped(x: Annotated[float, above(0), 'said'] | None = None, y: Annotated[Literal[1, 2], 'of two'] = 1) -> None:
        """Never called."""

    x, y = declared(wrapped).values()
    assert (x.kind, x.meaning, x.optional) == ('number', 'said', True)
    with pytest.raises(ValueError, match='^x is -1: give a number above 0 or None'):
        x.check(-1)
    assert y.check(2) == 2 and y.meaning == 'of two'


def test_a_hint_that_only_a_type_checker_can_read_checks_nothing():
    def local(x: Unknown = 1) -> None:  # noqa: F821
        """Never called."""

    assert declared(local) == {'x': Param('x', 1, 'any')}


@pytest.mark.parametrize(
    ('schedule', 'message'),
    [
        ((float('nan'),), 'start of a Linear schedule is nan: give a finite number.'),
        ((1.0, '0'), "end of a Linear schedule is '0': give a finite number."),
        ((1.0, 0.0, 2.0), 'until of a Linear schedule is 2.0: give a fraction of the training, from 0 to 1.'),
    ],
)
def test_schedules_that_are_none(schedule: tuple, message: str):
    with pytest.raises(ValueError) as info:
        Linear(*schedule)
    assert str(info.value) == message


def test_names_of_other_libraries():
    known, elsewhere = ['epochs', 'entropy_coef'], {'train_steps': 'is a parameter of learn.'}
    refused = {
        name: params.refusal('parameter', name, known, elsewhere) for name in ('n_epochs', 'total_timesteps', 'lr')
    }
    assert refused['n_epochs'] == "unknown parameter 'n_epochs': it is called 'epochs' here."
    assert refused['total_timesteps'].endswith("it is called 'train_steps' here, and is a parameter of learn.")
    assert 'optimizers_list' in refused['lr']
    assert params.refusal('parameter', 'epoch', known, elsewhere).startswith("unknown parameter 'epoch': did you mean")


class Base:
    """A class with parameters of every origin."""

    fraction: Annotated[float, between(0, 1), 'a part of one'] = 0.9
    count: Annotated[int, at_least(1)]
    entries: list[int] = []  # noqa: RUF012
    shared: ClassVar[int] = 3
    unknown: Unknown = 1  # noqa: F821
    of_class: ClassVar[Unknown] = 1  # noqa: F821


def always(_: type) -> bool:
    return True


def test_fields_are_annotated_attributes():
    found = params.fields(Base, always)
    assert list(found) == ['fraction', 'count', 'entries', 'unknown']
    assert found['fraction'].default == 0.9 and found['count'].default is Param.required
    assert found['unknown'] == Param('unknown', 1, 'any')
    found['entries'].fresh().append(1)
    assert found['entries'].fresh() == []


def test_a_subclass_changes_a_default_and_adds_a_field():
    class Variant(Base):
        """One of each."""

        extra: int = 1
        fraction = 0.5
        other = 7

    inherited = params.fields(Base, always)
    found = params.fields(Variant, always)
    assert list(found) == [*inherited, 'extra']
    assert found['fraction'].default == 0.5 and found['fraction'].meaning == 'a part of one'
    assert inherited['fraction'].default == 0.9


def test_a_field_that_is_declared_again_keeps_its_range_and_its_meaning():
    class Again(Base):
        """Another default, written as dataclasses have it."""

        fraction: float = 0.5

    found = params.fields(Again, always)['fraction']
    assert (found.default, found.range, found.meaning) == (0.5, between(0, 1), 'a part of one')

    class Wrong(Base):
        """A fraction that is none, likewise."""

        fraction: float = 1.5

    with pytest.raises(ValueError, match=r'^Wrong\.fraction is 1\.5: give a number from 0 to 1\.$'):
        params.fields(Wrong, always)


def test_a_default_is_the_one_that_the_class_has():
    class One(Base):
        """Its count."""

        count = 3

    class Other(Base):
        """Its fraction."""

        fraction = 0.5

    class Mixin:
        """A plain class; its annotations declare nothing."""

        fraction = 0.25
        annotated: int = 1

    class Both(One, Other):
        """Neither overwrites the other."""

    class Mixed(Mixin, Both):
        """The mixin goes first."""

    assert [params.fields(Both, always)[name].default for name in ('count', 'fraction')] == [3, 0.5]
    found = params.fields(Mixed, lambda base: base is not Mixin)
    assert [found[name].default for name in ('count', 'fraction')] == [3, 0.25] and 'annotated' not in found


def test_a_method_with_the_name_of_a_field_is_refused():
    class Wrong(Base):
        """A method where a list is meant."""

        def entries(self) -> list[int]:
            return [1]

    with pytest.raises(TypeError, match=r'^Wrong\.entries has the name of a parameter: name the method otherwise\.$'):
        params.fields(Wrong, always)


def test_a_default_out_of_range_is_refused_with_class_and_field():
    class Wrong(Base):
        """A fraction that is none."""

        fraction = 1.5

    with pytest.raises(ValueError, match=r'^Wrong\.fraction is 1\.5: give a number from 0 to 1\.$'):
        params.fields(Wrong, always)
