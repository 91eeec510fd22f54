"""What a kill -9 at named points leaves behind: nothing lost, nothing twice."""
