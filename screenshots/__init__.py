"""Pictures of the dashboard, made from the running application by `make screenshots`."""
