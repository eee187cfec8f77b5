"""The few names a notebook imports; each loads its module when first used, to import quickly.

The list is `__init__.pyi`, for editors and type checkers as well as for the loader.
"""

__version__ = "0.1.0"

try:
    import lazy_loader
except ModuleNotFoundError:  # the doctor needs no package, and is there to say that one is missing
    pass
else:
    __getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
