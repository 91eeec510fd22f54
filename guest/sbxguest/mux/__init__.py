"""Many byte streams over one connection that may be lost and made again: what both ends of a tunnel share.

`frames` says what is sent, `stream` keeps the books of one stream, `mux` puts streams and a connection together, `pipe`
joins a stream to a socket. Imports the standard library and `sbxguest.wire`.
"""
