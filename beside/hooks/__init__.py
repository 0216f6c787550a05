"""`spillgate hook`: answers the hook of a coding agent, and edits the settings of the agent."""
