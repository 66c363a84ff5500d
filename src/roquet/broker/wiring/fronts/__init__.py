"""Services, the operations that fronts call, and their adapters."""
