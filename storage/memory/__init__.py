"""The reference: everything in this process's memory, gone when the process ends."""
