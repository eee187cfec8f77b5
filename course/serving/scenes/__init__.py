"""Servers and traffic that explorers, exercises and tests share; nothing is asked here."""
