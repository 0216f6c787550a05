"""What the hooks of all coding agents have in common. `beside/hooks/agents` has a file for each agent."""
