"""What the budget costs: renderings beside jinja's own sandbox, `python -m tests.router.prompt.speed_of_templates`.

Templates of ours and of the published tokenizers, and of a folder of `.jinja` files where one is named; a long
conversation with tools and a short one; CPU time, the two in turns, median of the ratios.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from router.prompt.template import ChatTemplate, TemplateRefused, load_chat_template
from tests.router.prompt.plain_jinja import PlainTemplate
from tests.router.prompt.real_tokenizers import CHATS, PUBLISHED, TOY

ROUNDS = 12
CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a", "n": 3}'}}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "d"}}, "required": ["path"]}
TOOLS = [
    {"type": "function", "function": {"name": f"read{n}", "description": "reads", "parameters": PARAMETERS}}
    for n in range(10)
]
TURN = [
    {"role": "user", "content": "hello there " * 20},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "result " * 50},
    {"role": "assistant", "content": "ok then " * 20},
]
SYSTEM, LAST = {"role": "system", "content": "You are."}, {"role": "user", "content": "bye"}
CHATTED = {"long": ([SYSTEM, *TURN * 10, LAST], TOOLS), "short": ([SYSTEM, *TURN, LAST], TOOLS[:1])}


def find_templates(folder: Path | None) -> dict[str, ChatTemplate]:
    """Templates by name."""
    found = {name: load_chat_template(TOY if name == "toy" else PUBLISHED / name) for name in CHATS}
    for path in sorted(folder.glob("*.jinja")) if folder is not None else ():
        found[path.stem] = ChatTemplate(path.read_text(encoding="utf-8"), {"bos_token": "<s>", "eos_token": "</s>"})
    return {name: template for name, template in found.items() if template is not None}


def compare(ours: Callable[[], Any], plain: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of one of ours, and the ratio to jinja's."""
    repeats = 1 + int(0.01 / time_calls(plain, 3) * 3)
    pairs = [(time_calls(ours, repeats), time_calls(plain, repeats)) for _ in range(ROUNDS)]
    return median(one for one, _ in pairs) / repeats, median(one / other for one, other in pairs)


def time_calls(call: Callable[[], Any], count: int) -> float:
    """CPU time of so many calls."""
    start = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - start


def main() -> None:
    """Write a line a template and conversation, then the median."""
    ratios = []
    for name, template in find_templates(Path(sys.argv[1]) if len(sys.argv) > 1 else None).items():
        plain = PlainTemplate(template._source, template._tokens)
        for length, (messages, tools) in CHATTED.items():
            try:
                template.render(messages, tools)
            except TemplateRefused:
                continue
            taken_s, ratio = compare(lambda: template.render(messages, tools), lambda: plain.render(messages, tools))  # noqa: B023
            ratios.append(ratio)
            sys.stdout.write(f"{name:46}{length:6}{taken_s * 1e6:9.1f} us {ratio:6.2f}\n")
    sys.stdout.write(f"ratio to jinja's: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}\n")


if __name__ == "__main__":
    main()
