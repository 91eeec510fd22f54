"""The face of agents, over the pipes and the protocol that they use."""
