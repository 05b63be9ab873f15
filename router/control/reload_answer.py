"""What `POST .../reload` of a file answers, whichever file it is."""

from collections.abc import Callable
from typing import Any

from fastapi.responses import JSONResponse

from router.control.error_answer import answer_error
from router.control.watched_file import WatchedFile


async def answer_reload(
    watch: WatchedFile, show: Callable[[], dict[str, Any]], *, what: str, missing: str
) -> JSONResponse:
    """Read a file anew: what it holds now, 409 where there is none, 422 where it is refused and the old one stays.

    Args:
        watch: The file.
        show: What acts, after it was read.
        what: Its name in the codes `no_WHAT_file` and `WHAT_refused`.
        missing: What to say where there is none.
    """
    if watch.path is None:
        return answer_error(409, missing, code=f"no_{what}_file")
    if await watch.look(is_asked=True):
        return JSONResponse(show())
    return answer_error(422, watch.problem or "the file was refused", code=f"{what}_refused")
