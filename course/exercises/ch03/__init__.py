"""The exercises of notebook 03, a file each; the registry finds them."""
