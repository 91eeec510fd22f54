"""What broke other servers of agents, and the tests that it does not break this one.

A case that no test here can show says why, behind a dash.
"""

from __future__ import annotations

from tests.support.cases import cases_of, unproved

CASES = """
1 the client is killed, and the pipe ends
  stdio.test_a_client_that_leaves_ends_the_server_quietly_and_no_backend_was_asked
  session.test_a_client_that_dies_leaves_its_sessions_and_nothing_else
2 Ctrl-C on a terminal while it waits
  stdio.test_a_signal_ends_it_once_and_quietly
3 requests come from a file, and its end with them
  stdio.test_what_is_asked_right_before_the_end_is_answered
4 something is printed before the first message
  stdio.test_whatever_a_library_prints_or_reads_the_pipe_belongs_to_the_protocol
  hostile.test_nothing_but_the_protocol_is_said_whatever_prints_and_a_pipe_that_never_waits_is_read
5 a program that it starts reads its input
  hostile.test_nothing_but_the_protocol_is_said_whatever_prints_and_a_pipe_that_never_waits_is_read
  tools.test_a_command_tells_how_it_ended_whatever_way_that_was
6 something is asked while a slow tool works
  session.test_a_client_that_dies_leaves_its_sessions_and_nothing_else
7 one session is waited for, another asked; what is written to one keeps its order
  tools.test_what_takes_long_becomes_a_session_that_others_see_and_use
8 a command ends by a signal, or is late
  tools.test_a_command_tells_how_it_ended_whatever_way_that_was
  guest/test_exec.test_a_timeout_kills_children_and_those_who_escaped_into_their_own_sessions
9 a long call is cancelled
  tools.test_a_cancelled_call_ends_its_command_and_the_next_call_works
10 the next call after a cancelled one
  tools.test_a_cancelled_call_ends_its_command_and_the_next_call_works
11 output that is no text
  tools.test_a_command_tells_how_it_ended_whatever_way_that_was
  clip.test_whatever_the_bytes_what_is_shown_is_text_and_its_counts_hold
  stdio.test_bytes_that_are_no_text_do_not_silence_the_server
12 lines end in a line feed alone
  stdio.test_lines_that_are_no_messages_harm_nothing
13 the locale or the backend is broken when the client greets
  hostile.test_a_server_that_finds_nothing_in_order_greets_all_the_same_and_tells_what_is_wrong
14 a new file below a link that leads out of an allowed folder
  hostpaths.test_everything_else_is_refused_for_reading_and_writing
  tools.test_copies_to_and_from_this_machine_stay_in_the_allowed_folder
15 a folder whose name begins as an allowed one's, and a link inside of one
  hostpaths.test_everything_else_is_refused_for_reading_and_writing
16 `..`, and paths that do not look like one
  hostpaths.test_other_spellings_of_a_path_are_no_way_around
17 an address where a path is expected
  hostpaths.test_other_spellings_of_a_path_are_no_way_around
18 arguments that may be left out, as every client reads them
  params.test_what_is_listed_is_small_and_every_client_can_read_it
19 names of tools, as every client takes them
  params.test_what_is_listed_is_small_and_every_client_can_read_it
20 a client that can ask its person, and declines at once
  tools.test_the_person_behind_a_client_is_asked_before_anything_is_lost
21 more output than clients take
  tools.test_a_command_tells_how_it_ended_whatever_way_that_was
  clip.test_no_reply_is_larger_than_clients_take_however_its_bytes_are_escaped
22 a command longer than a client's patience
  tools.test_what_takes_long_becomes_a_session_that_others_see_and_use
23 secrets under harmless names
  clients.test_each_change_of_a_client_waits_until_a_person_approves_or_denies_it
24 several servers write at once
  kills.test_four_servers_that_write_at_once_lose_nothing
25 a later step of making a sandbox fails
  tools.test_a_sandbox_whose_making_fails_in_the_end_is_there_no_more
26 sandboxes of a server that was killed
  kills.test_servers_that_are_killed_leave_no_process_and_no_sandbox_half_made_or_for_one_command
  kills.test_fifty_servers_killed_at_any_moment_leave_nothing_behind
"""


def test_the_tests_of_every_case_are_there() -> None:
    found = cases_of(CASES)
    assert list(found) == [str(number) for number in range(1, 27)]
    assert all(found.values()) and unproved(found.values(), "mcp_server") == []
