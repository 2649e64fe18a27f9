"""The table of Stable-Baselines3's names in docs/start/from_sb3.md is what they do."""

import re

import pytest
from sb3_table import (
    ANSWERED,
    BEGIN_OF_PROGRAMS,
    NOTED,
    PAGE,
    UNKNOWN,
    WORKS,
    imported,
    outcomes,
    outcomes_in_programs,
    table,
    table_in_programs,
    with_table,
)


@pytest.fixture(scope="module")
def found():
    return list(outcomes())


def test_the_page_has_the_present_table(found):
    page = PAGE.read_text()
    assert page == with_table(page, table(found)), "run `python tests/docs/sb3_table.py`"


@pytest.fixture(scope="module")
def in_programs():
    return list(outcomes_in_programs())


def test_the_page_has_the_present_table_of_programs(in_programs):
    page = PAGE.read_text()
    assert page == with_table(page, table_in_programs(in_programs), BEGIN_OF_PROGRAMS), "run tests/docs/sb3_table.py"


def test_each_name_in_a_program_works_or_says_what_to_use(in_programs):
    assert len(in_programs) == 1014
    assert [row[:2] for row in in_programs if row[2] == UNKNOWN] == []
    silent = [row[:2] for row in in_programs if row[2] in (ANSWERED, NOTED) and len(row[3]) < 10]
    assert silent == []


def test_most_names_work_and_nearly_all_are_answered(found):
    count = {outcome: sum(row[2] == outcome for row in found) for outcome in (WORKS, ANSWERED, UNKNOWN)}
    assert count[UNKNOWN] < 0.1 * len(found), [row[:2] for row in found if row[2] == UNKNOWN]


def test_no_keyword_of_a_constructor_is_unknown(found):
    assert [row[1] for row in found if row[0].startswith("keywords") and row[2] == UNKNOWN] == []


def test_what_the_page_calls_missing_is_missing_and_answered(found):
    _, section = PAGE.read_text().split("## What is missing")
    modules, _ = section.split("| of a model | here |")
    names = re.findall(r"`(\w+)`", modules.partition("|---|---|")[2])
    assert len(names) > 30
    assert {name: imported(name)[0] for name in names} == dict.fromkeys(names, ANSWERED)
