"""The tests: real processes, real sockets, `tmp_path`; folders mirror `src`."""
