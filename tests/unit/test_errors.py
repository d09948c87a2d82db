"""Every error has a word, a status and an exit code of its own, and survives the way to another process."""

import copy
import pickle

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError

BUILTINS = {
    "InvalidArgument": ValueError,
    "UnknownName": KeyError,
    "RowSourceError": OSError,
    "LedgerUnavailable": OSError,
    "MissingExtra": ImportError,
}


def descendants(cls: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [cls] + [each for child in cls.__subclasses__() for each in descendants(child)]


ALL = descendants(HoldfastError)
NAMES = [cls.__name__ for cls in ALL]


@pytest.mark.parametrize("cls", ALL, ids=NAMES)
def test_every_class_is_drawn_and_documented(cls):
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__doc__


@pytest.mark.parametrize("cls", ALL, ids=NAMES)
def test_every_class_has_its_own_kind(cls):
    assert "kind" in vars(cls)
    assert sum(other.kind == cls.kind for other in ALL) == 1
    assert cls.kind.replace("_", "").islower()


@pytest.mark.parametrize("cls", ALL, ids=NAMES)
def test_status_and_exit_code_are_ones_that_exist(cls):
    assert cls.status in range(400, 600)
    assert cls.exit_code in range(1, 126)


def test_only_a_special_case_shares_its_parents_exit_code():
    for one in ALL:
        for two in ALL:
            if one.exit_code == two.exit_code:
                assert issubclass(one, two) or issubclass(two, one)
    assert all(cls.exit_code > HoldfastError.exit_code for cls in ALL[1:])


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_callers_may_catch_the_builtin_they_expect(name, builtin):
    assert issubclass(getattr(errors, name), builtin)


@pytest.mark.parametrize("cls", ALL, ids=NAMES)
def test_the_text_is_the_sentence(cls):
    sentence = "ell must be at most n (10); got 20."
    assert str(cls(sentence, ell=20)) == sentence
    assert cls(sentence).args == (sentence,)


@pytest.mark.parametrize("cls", ALL, ids=NAMES)
@pytest.mark.parametrize("send", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_travel_with_their_fields(cls, send):
    arrived = send(cls("No.", left=3, unit="rows"))
    assert type(arrived) is cls
    assert str(arrived) == "No."
    assert arrived.fields == {"left": 3, "unit": "rows"}


def test_what_a_guarantee_does_not_cover_is_a_special_conflict():
    assert issubclass(errors.NotCovered, errors.PlanConflict)  # asked again if the plan changed meanwhile
    assert (errors.NotCovered.status, errors.PlanConflict.status) == (422, 409)
