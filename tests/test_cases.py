"""Faults that others had, by case, each with the tests that prove that they are none of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

CROSS_TALK, DELIVERY = "tests/e2e/test_cross_talk.py", "tests/e2e/test_delivery.py"
WEAR = "tests/gpu/test_wear.py"
CASES = {
    # Memory, GPUs and children that are replaced.
    "B44": (
        (
            WEAR,
            "test_the_parent_never_has_a_context_though_the_engine_makes_one_as_it_is_imported",
        ),
    ),
    "B45": (
        (WEAR, "test_a_fresh_child_over_its_limit_of_device_memory_works_on_and_it_is_said_once"),
        (
            "tests/e2e/test_recycling.py",
            "test_a_fresh_child_over_a_limit_works_on_and_health_says_so",
        ),
    ),
    "B46": (
        (
            WEAR,
            "test_what_cuda_fails_at_fails_alone_and_no_other_text_is_spoken_by_that_process",
        ),
    ),
    "B47": ((WEAR, "test_over_many_recycles_memory_comes_back_to_what_it_was_and_no_job_is_lost"),),
    "B49": (
        (
            WEAR,
            "test_memory_that_the_driver_tells_in_other_ways_replaces_no_child_and_its_source_is_said",
        ),
        (
            "tests/worker/test_gpu.py",
            "test_a_figure_that_the_driver_withholds_is_the_engine_s_or_the_device_s_and_never_0",
        ),
        ("tests/worker/test_gpu.py", "test_each_device_has_a_figure_with_its_source_or_a_reason"),
    ),
    "B50": (
        (
            "tests/e2e/test_flat_memory.py",
            "test_texts_of_all_lengths_leave_memory_flat_and_the_session_s_options_are_in_the_log",
        ),
    ),
    # Work of many clients at once.
    "B38": ((CROSS_TALK, "test_a_worker_of_another_pool_does_not_start"),),
    "B40": (
        (CROSS_TALK, "test_each_file_has_the_text_and_the_voice_of_its_own_item"),
        (CROSS_TALK, "test_a_slow_reader_gets_its_file_whole_while_others_are_written"),
    ),
    "B41": ((CROSS_TALK, "test_each_file_has_the_text_and_the_voice_of_its_own_item"),),
    "B42": ((CROSS_TALK, "test_each_file_has_the_text_and_the_voice_of_its_own_item"),),
    # Work that is lost, or comes twice.
    "B51": (
        (
            DELIVERY,
            "test_a_long_batch_runs_once_and_the_visibility_timeout_is_beyond_the_longest_one",
        ),
        (
            "tests/e2e/test_worker_config.py",
            "test_a_second_copy_of_a_message_does_not_take_the_place_of_the_result",
        ),
    ),
    "B53": (
        (DELIVERY, "test_what_kills_each_child_fails_after_its_attempts_and_keeps_no_message"),
        (DELIVERY, "test_what_each_worker_dies_of_fails_after_its_attempts"),
    ),
    "B54": (
        (
            DELIVERY,
            "test_a_text_without_memory_fails_by_name_keeps_no_message_and_ends_no_worker",
        ),
    ),
    "B55": (
        (DELIVERY, "test_what_a_killed_worker_held_goes_on_as_soon_as_another_takes_its_name"),
    ),
    "B56": ((DELIVERY, "test_a_worker_takes_work_again_after_its_connections_broke_thrice"),),
    "B58": (
        (
            "tests/api/test_jobs.py",
            "test_a_job_that_never_was_one_that_waits_and_one_that_is_gone_are_told_apart",
        ),
        ("tests/api/test_jobs.py", "test_an_unknown_job_is_not_found"),
    ),
    "B59": (
        (
            "tests/api/test_outage.py",
            "test_a_redis_that_died_is_answered_for_and_its_return_noticed",
        ),
        (
            "tests/api/test_outage.py",
            "test_a_redis_that_hangs_is_answered_for_and_its_return_noticed",
        ),
    ),
    "B60": ((DELIVERY, "test_a_cancel_that_no_worker_heard_holds"),),
    "B61": (
        ("tests/e2e/test_handover.py", "test_a_hung_batch_is_killed_and_its_guilty_item_named"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_tests_that_exist(case: str) -> None:
    for file, test in CASES[case]:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)
