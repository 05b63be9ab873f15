"""Why an op refuses its arguments; nothing has been written when one of these is raised.

```
KernelError (ValueError)
├── ShapeMismatch     dimensions that do not fit each other
├── DtypeMismatch     dtypes that differ, or that the op does not take; nothing is converted silently
└── PageOutOfRange    a sequence would touch a page that the pool does not have
```
"""


class KernelError(ValueError):
    """An op was called with arguments that it does not take."""


class ShapeMismatch(KernelError):  # noqa: N818 - the name says what is wrong
    """Dimensions do not fit each other."""


class DtypeMismatch(KernelError):  # noqa: N818 - the name says what is wrong
    """Dtypes differ, or the op does not take them."""


class PageOutOfRange(KernelError):  # noqa: N818 - the name says what is wrong
    """A page number is not one of the pool's."""
