"""Notebook 04's explorers: token budgets, whose prefill hurts whom, and KV memory."""
