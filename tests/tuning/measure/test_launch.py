"""How a launch ended, from what ranks and torchrun print."""

from __future__ import annotations

from tuning.measure.launch import _death, _read

KILLED = """
  time      : 2026-01-01_00:00:00
  host      : box
  rank      : 1 (local_rank: 1)
  exitcode  : {status} (pid: 77)
  error_file: <N/A>
"""


def test_a_killed_rank_is_named_with_its_signal() -> None:
    assert _death(KILLED.format(status=-9)) == (
        "rank 1 was killed (SIGKILL); the system kills processes when memory runs out"
    )
    assert _death(KILLED.format(status=-11)) == "rank 1 was killed (SIGSEGV)"


def test_the_others_that_torchrun_ends_are_not_the_cause() -> None:
    for others in (KILLED.format(status=-15), KILLED.format(status=1)):
        words = others.replace("rank      : 1 (local_rank: 1)", "rank      : 0 (local_rank: 0)")
        assert _death(words + KILLED.format(status=-9)).startswith("rank 1 was killed (SIGKILL)")


def test_a_rank_that_ends_by_itself_is_named_with_its_status() -> None:
    assert _death(KILLED.format(status=2)).startswith("rank 1 ended with status 2")


def test_no_account_is_the_last_line() -> None:
    assert _death("one\ntwo\n\n") == "the ranks ended without a result: two"
    assert _death("").endswith("no message")


def test_lines_of_libraries_are_not_heard() -> None:
    assert _read("[W] Gloo connected\n") == {} and _read("3\n") == {}
    assert _read('{"repeat": 1, "of": 2}\n') == {"repeat": 1, "of": 2}
