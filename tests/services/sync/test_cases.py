"""What broke other programs that keep folders equal, and the tests that it does not break this one: T01 to T53.

A case that no test here can show says why, behind a dash.
"""

from __future__ import annotations

from tests.support.cases import cases_of, unproved

CASES = """
T01 the sandbox is made anew under the same name
  cycle.test_another_sandbox_of_the_same_name_halts_and_going_on_deletes_nothing
T02 the first comparison is killed again and again
  any_history.test_no_kill_of_the_processes_that_sync_loses_what_somebody_wrote
  cli/test_sync.test_a_link_that_was_killed_is_taken_up_again_and_nothing_is_sent_twice
T03 a listing is cut off, empty or a fault
  guest/test_tree_frames.test_a_cut_or_forged_manifest_has_no_end
  plan.test_nothing_follows_from_a_listing_that_was_cut_off
  sights.test_a_guest_that_answers_with_a_fault_of_its_own_is_asked_again
T04 a root is removed, emptied, or becomes a file
  cycle.test_a_root_that_was_lost_halts_and_deletes_nothing
  halts.test_a_side_that_was_emptied_halts
T05 what both sides agreed on is lost
  cycle.test_a_state_that_was_lost_deletes_nothing_and_what_differs_is_a_conflict
T06 a switch of branches removes files
  link.test_a_switch_of_branches_is_carried_over_as_a_whole
T07 an ignored path on both sides goes on one
  cycle.test_ignored_files_are_not_sent_not_deleted_and_follow_the_rules_as_they_change
T08 a folder with ignored output is deleted
  cycle.test_ignored_output_below_a_deleted_folder_stays_without_an_error_that_repeats
T09 a large file goes while it is sent
  sights.test_a_large_file_that_goes_while_it_is_sent_is_sent_no_further_and_leaves_nothing
T10 a nested file is renamed
  cycle.test_deletions_renames_modes_and_empty_folders_are_mirrored
  guest/test_tree_apply.test_contents_are_taken_from_where_they_are_known
T11 folders are renamed in a loop
  storms.test_no_old_name_comes_back_while_folders_are_renamed_again_and_again
T12 the sandbox has files this machine never had
  cycle.test_what_only_the_sandbox_has_stays_and_is_counted
T13 a sandbox is removed whose edits nobody took over
  cli/test_sync.test_a_detached_sync_goes_on_under_another_name_and_ends_with_its_sandbox
T14 many generated files are written anew
  sights.test_many_generated_files_that_are_written_anew_again_and_again_are_equal_each_time
T15 files are born in new folders
  link.test_files_born_in_new_folders_are_not_missed
  guest/test_tree_feed.test_what_is_made_in_folders_that_are_new_is_found
  guest/test_tree_feed.test_an_unpacked_archive_is_found_whole
T16 more is written than a stopped watcher is told of
  storms.test_what_was_written_while_the_link_was_stopped_is_found_though_the_watcher_lost_it
  watch.test_notes_the_kernel_had_no_room_for_are_a_loss_that_is_told
  guest/test_tree_feed.test_more_notes_than_the_kernel_keeps_are_said_to_be_lost
T17 there are more folders than watches
  storms.test_with_too_few_watches_it_goes_on_by_looking_and_names_the_setting
T18 changes raise no event
  sights.test_changes_that_raise_no_event_are_found_by_looking_now_and_then_and_after_the_clock_jumped
T19 the root is named by a link
  sights.test_changes_that_raise_no_event_are_found_by_looking_now_and_then_and_after_the_clock_jumped
T20 editors save in their own ways
  link.test_saves_arrive_by_themselves_and_temporary_names_of_editors_never_do
T21 the sandbox sleeps while files are saved
  cli/test_sync.test_a_suspended_sandbox_gets_what_was_saved_meanwhile
T22 a file is touched
  cycle.test_only_what_a_hint_points_at_is_carried_over_and_nothing_is_asked_for_no_change
T23 the network is gone, or the machine slept
  link.test_an_outage_is_waited_for_and_what_happened_meanwhile_is_found
  sights.test_changes_that_raise_no_event_are_found_by_looking_now_and_then_and_after_the_clock_jumped
T24 an empty folder comes and goes
  cycle.test_deletions_renames_modes_and_empty_folders_are_mirrored
T25 a file grows and shrinks while it is sent
  cycle.test_a_file_that_changed_after_it_was_looked_at_is_not_half_sent_and_comes_next
  guest/test_tree_scan.test_a_file_that_never_keeps_still_is_unstable_and_the_rest_is_listed
T26 a log is written for ever
  link.test_a_file_that_is_written_all_the_time_does_not_keep_others_waiting
T27 somebody reads a file at each update
  storms.test_whoever_reads_a_file_in_the_sandbox_sees_one_version_whole_at_each_update
T28 the sandbox's disk is full
  link.test_a_full_disk_is_told_and_what_did_not_fit_comes_when_there_is_room
T29 a write of the same size within a tick of the clock
  cycle.test_a_same_size_write_within_the_same_tick_is_found_at_the_next_look
T30 a file changes between plan and sending
  cycle.test_a_file_that_changed_after_it_was_looked_at_is_not_half_sent_and_comes_next
T31 a file of 2 GB
  much.test_a_file_larger_than_memory_may_hold_costs_neither_side_memory
T32 a line of 1 MB/s, and one that goes silent
  much.test_a_slow_line_takes_longer_than_any_patience_and_nothing_times_out
  much.test_a_line_that_takes_nothing_any_more_is_noticed
T33 sparse, empty and emptied files
  storms.test_a_sparse_file_arrives_with_its_size
  guest/test_tree_packed.test_a_sparse_file_is_sent_as_little_and_stays_sparse
  storms.test_empty_files_and_files_that_were_emptied_arrive
  halts.test_a_first_comparison_that_would_send_very_much_halts_and_names_where_the_most_is
  sights.test_of_a_first_look_that_takes_long_the_sizes_are_asked_before_all_of_it_is_read
T34 line ends, byte order marks and NULs
  cycle.test_a_first_comparison_makes_the_sandbox_as_this_machine_is
T35 both sides edit a file
  link.test_a_two_way_link_leaves_both_versions_of_what_both_edited
T36 one side edits what the other deletes
  link.test_an_edit_beats_a_deletion_on_the_other_side
T37 the sandbox's clock is wrong
  cycle.test_the_sandboxs_clock_decides_nothing
T38 a second sync of the same pair
  cli/test_sync.test_exec_sees_what_was_saved_before_it_and_the_link_ends_with_its_process
T39 programs stay programs, for the user of the sandbox
  cycle.test_a_first_comparison_makes_the_sandbox_as_this_machine_is
  guest/test_tree_apply.test_a_batch_makes_a_tree_in_order_and_says_what_stands_there
T40 only the executable bit changes
  guest/test_tree_apply.test_only_the_executable_bit_changes_and_the_other_bits_are_kept
  cycle.test_deletions_renames_modes_and_empty_folders_are_mirrored
T41 links that dangle, are absolute, or lead out
  cycle.test_names_of_any_bytes_and_odd_links_are_carried_over_exactly
  review.test_links_out_of_the_folder_and_git_itself_are_never_taken_over
T42 a hostile sandbox lists what it likes
  review.test_a_sandbox_that_lists_what_no_folder_can_hold_is_not_believed
  guest/test_tree_frames.test_a_path_that_leads_out_of_a_tree_is_refused_everywhere
  guest/test_tree_client.test_a_listing_without_an_end_is_not_held_in_memory
T43 links that lead up, or in circles
  guest/test_tree_scan.test_links_are_told_and_never_followed
  watch.test_links_out_of_the_folder_are_not_hinted_at_under_a_foreign_name
T44 names that differ in their case only
  storms.test_a_name_that_changes_in_its_case_only_is_renamed_there_too
  - a folder that is blind to case: no file system of the kernels that these tests run on can be one
T45 names that differ in how they compose a letter
  cycle.test_names_of_any_bytes_and_odd_links_are_carried_over_exactly
  - one name for both, as macOS has it: these tests run on Linux
T46 a name that is no text
  watch.test_a_name_that_kills_the_library_leads_to_a_look_at_everything
  watch.test_the_kernel_tells_odd_names_and_files_in_new_folders_and_nothing_of_what_is_left_out
  cycle.test_names_of_any_bytes_and_odd_links_are_carried_over_exactly
T47 names with quotes, blanks and newlines
  cycle.test_names_of_any_bytes_and_odd_links_are_carried_over_exactly
  guest/test_tree_apply.test_odd_names_are_made_and_removed
T48 mounts, pipes, sockets, and what may not be read
  cycle.test_what_is_no_file_folder_or_link_is_named_once_and_never_opened
  guest/test_tree_scan.test_another_file_system_is_named_and_not_entered
  guest/test_tree_scan.test_what_may_not_be_read_is_named
T49 ignore files that are nested and negated
  guest/test_ignore.test_nested_ignore_files_leave_out_exactly_what_git_leaves_out
T50 an ignore file is edited
  cycle.test_ignored_files_are_not_sent_not_deleted_and_follow_the_rules_as_they_change
T51 both sides commit
  cycle.test_git_itself_is_synced_from_neither_side
T52 half a million entries
  much.test_half_a_million_entries_are_told_of_soon_and_cost_little_each
  sights.test_a_first_look_tells_how_far_it_has_come_and_where_the_most_is
T53 the root is replaced, a folder renamed twice
  link.test_a_folder_moved_away_with_another_in_its_place_halts
  watch.test_another_folder_in_the_place_of_the_watched_one_is_watched_anew
  guest/test_tree_feed.test_edits_in_a_folder_that_was_moved_have_its_new_name
"""


def test_there_is_a_line_for_each_case() -> None:
    assert list(cases_of(CASES)) == [f"T{number:02}" for number in range(1, 54)]


def test_the_tests_of_every_case_are_there() -> None:
    found = cases_of(CASES).values()
    assert all(found) and unproved(found, "services/sync") == []
