import pytest

from nodesmith.model.apimachinery.times import MACROS, CronError, parse_cron


def test_a_schedule_has_the_moments_of_its_fields() -> None:
    cron = parse_cron("*/20 9-17/4 1,15 jan-mar mon-fri")
    assert cron.minutes == {0, 20, 40}
    assert cron.hours == {9, 13, 17}
    assert cron.days == {1, 15}
    assert cron.months == {1, 2, 3}
    assert cron.weekdays == {1, 2, 3, 4, 5}
    assert (cron.any_day, cron.any_weekday) == (False, False)


def test_a_step_from_one_value_runs_to_the_end() -> None:
    assert parse_cron("50/5 * * * *").minutes == {50, 55}


@pytest.mark.parametrize("macro", MACROS)
def test_a_macro_equals_the_schedule_that_it_stands_for(macro: str) -> None:
    assert parse_cron(macro) == parse_cron(MACROS[macro])


def test_a_star_and_a_question_mark_mean_any_day() -> None:
    cron = parse_cron("0 0 ? * *")
    assert (cron.any_day, cron.any_weekday) == (True, True)
    assert cron.days == set(range(1, 32))


def test_a_star_with_a_step_is_a_restriction_as_in_karpenter() -> None:
    cron = parse_cron("0 0 */2 * mon")
    assert (cron.any_day, cron.any_weekday) == (False, False)
    cron = parse_cron("0 0 */1 * 1,*")
    assert (cron.any_day, cron.any_weekday) == (True, True)


def test_a_step_beyond_the_end_gives_the_first_value() -> None:
    cron = parse_cron("*/60 */24 * * *")
    assert [cron.minutes, cron.hours] == [frozenset({0}), frozenset({0})]


def test_a_day_that_only_some_of_the_months_have_is_accepted_and_so_is_a_weekday() -> None:
    assert parse_cron("0 0 31 2,3 *").days == {31}
    assert parse_cron("0 0 29 2 *").days == {29}
    assert parse_cron("0 0 30 2 mon").weekdays == {1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have five fields"),
        ("* * * *", "must have five fields .* this has 4"),
        ("@never", "must have five fields"),
        ("60 * * * *", "the minute '60' must be a number from 0 to 59"),
        ("* 24 * * *", "the hour '24' must be a number from 0 to 23"),
        ("* * 0 * *", "the day of the month '0' must be a number from 1 to 31"),
        ("* * * 13 *", "the month '13' must be a number from 1 to 12 or JAN to DEC"),
        ("* * * * 7", "the day of the week '7' must be a number from 0 to 6 or SUN to SAT"),
        ("* * * * funday", "the day of the week 'funday'"),
        ("17-9 * * * *", "the minute range 17-9 runs backwards"),
        ("*/0 * * * *", "the step of the minute '0' must be a number from 1 to 999"),
        ("0 0 30 2 *", "never matches: none of its months has a day 30"),
        ("0 0 31 2,4-6/2,9 ?", "never matches: none of its months has a day 31"),
        ("1,,2 * * * *", "the minute ''"),
        ("-1 * * * *", "the minute ''"),
        ("٣ * * * *", "the minute '٣'"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_wrong_field(text: str, message: str) -> None:
    with pytest.raises(CronError, match=message):
        parse_cron(text)
