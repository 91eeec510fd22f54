"""The version of the guest program: told in hello, kept in step with the host's by a test."""

GUEST_VERSION = "0.1.0"
