"""`spillgate replay`: reads transcripts of agents, and says what a policy would have done to them.

The decisions, texts and answers are those of the service, in this process and on memory storage. Figures are
added run by run, so that no more than a few runs are in memory.
"""
