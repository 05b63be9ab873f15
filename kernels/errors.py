"""Why an op refuses its arguments; nothing has been written when one of these is raised.

```
KernelError (ValueError)
├── ShapeMismatch       dimensions that do not fit each other
│   └── OverlappingRanges   what would be written overlaps itself, or what is read
├── DtypeMismatch       dtypes that differ, or that the op does not take; nothing is converted silently
│   └── DeviceMismatch      tensors that lie on different devices
└── PageOutOfRange      a page, slot or state that the pool does not have
```
"""


class KernelError(ValueError):
    """An op was called with arguments that it does not take."""


class ShapeMismatch(KernelError):  # noqa: N818 - the name says what is wrong
    """Dimensions do not fit each other."""


class OverlappingRanges(ShapeMismatch):
    """What would be written overlaps itself, or what is read."""


class DtypeMismatch(KernelError):  # noqa: N818 - the name says what is wrong
    """Dtypes differ, or the op does not take them."""


class DeviceMismatch(DtypeMismatch):
    """Tensors lie on different devices."""


class PageOutOfRange(KernelError):  # noqa: N818 - the name says what is wrong
    """A page, slot or state number is not one of the pool's."""
