"""Forwards: the bytes, the listeners, who may pass.

What others' forwards were reported to break on, case by case, and the test that shows that ours does not. Names without
a module are of `probes.py`, which `test_conformance.py` runs through a tunnel and through an endpoint.

 1 the second connection hangs: test_forwarding.test_1000_short_connections_of_which_a_third_are_given_up_leave_nothing
 2 cancelled requests block the port: the same
 3 a client stops half-way: test_forwarding.test_a_client_that_goes_away_in_the_middle_is_told_to_the_server
 4 more connections than five: test_forwarding.test_64_connections_at_once_are_served_and_none_is_left
 5 a slow reader stops all: test_forwarding.test_a_stalled_reader_and_a_bulk_transfer_hold_up_nobody_else
 6 the server is started again: test_forwarding.test_a_server_that_is_started_again_is_found_again, and
   test_proxying.test_a_port_nobody_listens_on_is_named_and_served_once_somebody_does
 7 a close of whatever code: test_closings; cuts without one: test_forwarding.test_25_cuts_…
 8 silence cuts it: nothing here ends a silent connection; cli/test_forward_long sleeps for a minute over open ones
 9 a dead link without a word: test_forwarding.test_a_link_that_went_deaf_is_noticed_told_and_replaced
10 localhost is ::1: test_forwarding.test_bytes_go_both_ways_…, …test_a_server_that_speaks_first_is_heard
11 half a listener: test_listeners; cli/test_forward.test_a_taken_port_ends_with_3_…
12 Vite's host check: test_real_servers.test_vite_…
13 an action of Next: test_real_servers.test_an_action_of_next_…
14 Jupyter's origin check: test_real_servers.test_a_jupyter_kernel_…
15 a WebSocket with another host: core/test_proxyheads.test_a_page_of_this_origin_is_one_of_the_endpoints_…
16 no token on an upgrade: a_websocket_has_its_subprotocol_and_large_messages
17 decoded bodies: compressed_bytes_stay_compressed
18 copied lengths: chunks_arrive_as_they_were_cut, a_chunked_upload_arrives_with_its_trailers
19 events wait: events_come_while_the_stream_is_open
20 the server computes on: a_server_hears_of_a_client_that_left_a_stream, …_before_the_answer
21 cookies merged: two_cookies_stay_two
22 cookies of two forwards: cli/test_forward.test_a_port_of_the_sandbox_is_here_until_ctrl_c (its own host name)
23 a redirect to the endpoint: a_redirect_to_itself_stays_here; core/test_proxyheads.test_a_redirect_leaves_…
24 answers without a body: a_head_request_…, no_content_…, not_modified_…, an_empty_body_…, an_answer_of_http_1_0_…
25 Expect: who_waits_for_100_may_send
26 trailers: trailers_arrive
27 smuggling: core/test_following, core/test_webgate, and where the bytes pass test_forwarding, test_proxying
28 memory follows an upload: a_large_upload_is_identical for the bytes; `python -m bench forward` for the memory
29 a pooled connection is stale: test_proxying.test_a_kept_connection_that_was_closed_…
30 large messages: a_websocket_has_its_subprotocol_and_large_messages (32 MiB)
31 an idle tab wakes it: test_forwarding.test_a_suspended_sandbox_is_left_alone_…, cli/test_forward_long
32 a tab that was killed: test_forwarding.test_a_client_that_goes_away_…, …test_1000_short_connections_…
33 cost grows with the pool: a free connection is taken from the top of a stack, none is looked at
34 HTTP/2 is slow: no other protocol than HTTP/1.1 is offered upstream, in either mode
35 rebinding: test_forwarding.test_a_foreign_page_is_refused_…, test_proxying.test_what_may_not_pass_…
"""
