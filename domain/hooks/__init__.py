"""What the hooks of coding agents say, whatever the agent: `beside/hooks/agents` has a file for each."""
