"""Who goes next when there is no room, and who asks too often: takes requests before placement, gives their order.

Pure. What opens a place is placement's to say (limits of workers); the edge `router.proxy.admit` tries the head of
the order there, and holds clients back meanwhile.
"""

from router.admission.order import QueueOrder, Waiting
from router.admission.queue import AdmissionQueue, QueueSettings
from router.admission.rates import KeyRates

__all__ = ["AdmissionQueue", "KeyRates", "QueueOrder", "QueueSettings", "Waiting"]
