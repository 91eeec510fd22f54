"""What sbx can do, face-free and async. Imports control, guest, store, settings and core."""
