"""The drill of the shared service: agents, three replicas behind HAProxy, each kind of store, every fault."""
