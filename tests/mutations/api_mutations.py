"""Ways to break what clients rely on: answers as they are, names that end requests, bounds, paths that stay closed."""

from catalogue import Mutation

SIDE = ("tests/http/test_side_calls.py",)
APIS = ("tests/http/test_other_apis.py",)
CHATS = ("tests/router/proxy/test_known_chats.py",)
EVERY = ("tests/http/test_every_api.py",)
BOUNDS_TESTS = ("tests/router/proxy/test_bounds.py",)
FORMS = ("tests/router/prompt/test_anthropic_form.py",)
CHOICE = ("tests/router/prompt/test_conversion_choice.py",)
INFLATE_TESTS = ("tests/router/proxy/test_inflate.py",)
TEMPLATES = ("tests/router/prompt/test_prompt_template.py",)
PARITY = ("tests/router/control/test_parity.py",)
ENGINE_FORM = "router/prompt/engine_form.py"
CHUNKS = ("tests/router/prompt/test_held_chunks.py",)
FINGERPRINTS = ("tests/router/sessions/test_fingerprint.py",)
HELD = "router/prompt/held_chunks.py"
SSE = "router/proxy/sse.py"
NAMED = "router/proxy/named_requests.py"
BOUNDS = "router/proxy/bounds.py"
FORWARD = "router/config/forward.py"

API = (
    Mutation(
        "what outlasts shutdown.grace_s is cut off without a word",
        "router/app.py",
        "limited.shut_down()",
        "pass",
        ("tests/http/test_shutdown.py",),
    ),
    Mutation(
        "a message without its stop is complete",
        SSE,
        '"message_stop", "error"}',
        '"message_stop", "error", "message_delta"}',
        APIS,
    ),
    Mutation("generated answers are one", SSE, "self._finished.add(place)", "self.is_done = True", EVERY),
    Mutation(
        "each choice counts its prompt anew",
        SSE,
        "if place % choices_of_prompt == 0]",
        "]",
        APIS,
    ),
    Mutation(
        "a client's rid reaches its engine",
        "router/proxy/output_call.py",
        "            if self.engine_names:\n",
        "            if not self.engine_names:\n",
        SIDE,
    ),
    Mutation(
        "a request is ended by the start of its name",
        NAMED,
        "return list(self._running.get((tenant, name), ()))",
        "return [each for (_, known), all_ in self._running.items() if known.startswith(name) for each in all_]",
        SIDE,
    ),
    Mutation(
        "names of ended requests are kept",
        NAMED,
        "            alike.remove(request)\n",
        "",
        SIDE,
    ),
    Mutation("bounds hold for integers alone", BOUNDS, "int | float | str):", "int):", BOUNDS_TESTS),
    Mutation(
        "the whole vocabulary is no bound",
        BOUNDS,
        "number, 0, bounds.logprobs)",
        "number, None, bounds.logprobs)",
        BOUNDS_TESTS,
    ),
    Mutation(
        "fields of the router pass in an object",
        "router/proxy/body.py",
        "            self._refuse_nested_fields()\n",
        "            pass\n",
        BOUNDS_TESTS,
    ),
    Mutation(
        "operators' paths pass in other letters",
        FORWARD,
        "if segment.lower() in OPERATORS_SEGMENTS:",
        "if segment in OPERATORS_SEGMENTS:",
        SIDE,
    ),
    Mutation(
        "a prefix opens what begins alike",
        FORWARD,
        'path.startswith(f"{prefix}/")',
        "path.startswith(prefix)",
        SIDE,
    ),
    Mutation(
        "calls that are not placed go to unhealthy ranks",
        "router/proxy/usable.py",
        "for rank in ranks if rank.facts.accepts_requests())",
        "for rank in ranks)",
        SIDE,
    ),
    Mutation(
        "a bomb is made whole before it is refused",
        "router/proxy/inflate.py",
        "stream.decompress(shown, left_bytes + 1)",
        "stream.decompress(shown)",
        INFLATE_TESTS,
    ),
    Mutation(
        "a cut body passes",
        "router/proxy/inflate.py",
        "                return InflateProblem.CORRUPT\n            pieces",
        "                break\n            pieces",
        INFLATE_TESTS,
    ),
    Mutation(
        "results of tools stand where SGLang's later form has them",
        "router/prompt/anthropic_form.py",
        "        if self._form is MessagesForm.SGLANG_ORDERED and self._parts:\n",
        "        if self._parts:\n",
        FORMS,
    ),
    Mutation(
        "a conversion is never given up",
        "router/prompt/conversion_choice.py",
        "        standing.place += 1\n",
        "        standing.place += 0\n",
        CHOICE,
    ),
    Mutation(
        "errors of messages have OpenAI's form",
        "router/proxy/error_form.py",
        "        return ErrorForm.ANTHROPIC\n",
        "        return ErrorForm.OPENAI\n",
        APIS,
    ),
    Mutation(
        "an item never joins the message before it",
        "router/proxy/known_chats.py",
        "return None if known.is_open else (known, appended)",
        "return known, appended",
        CHATS,
    ),
    Mutation(
        "chats of all systems are one",
        "router/proxy/converted.py",
        'b"" if lead is None else lead)',
        'b"")',
        CHATS,
    ),
    Mutation("chunks of text are kept without end", HELD, "max_chunks * HASH_BYTES", "max_chunks * 100", CHUNKS),
    Mutation("the end of a prompt is the last to go", HELD, "in reversed(used):", "in used:", CHUNKS),
    Mutation(
        "a run whose chunks differ is held",
        HELD,
        "            if not prompt.startswith(run.hashes, place):\n",
        "            if not run.hashes:\n",
        CHUNKS,
    ),
    Mutation(
        "conversations that part are looked for in one place",
        "router/sessions/fingerprint.py",
        "landmark = (landmark + 1) // 2 - 1",
        "landmark = -1",
        FINGERPRINTS,
    ),
    Mutation(
        "what a developer says stays where it was said",
        ENGINE_FORM,
        "if self.developer is DeveloperForm.SENT or names_developer:",
        "if names_developer or self is not None:",
        TEMPLATES,
    ),
    Mutation(
        "reasoning keeps the name that it was sent under",
        ENGINE_FORM,
        "message.update(dict.fromkeys(names, told[0]) if told else {})",
        "message.update({names[0]: told[0]} if told else {})",
        TEMPLATES,
    ),
    Mutation(
        "malformed arguments reach the template of every engine as they are",
        ENGINE_FORM,
        "        if not is_always:\n            return call\n",
        "        return call\n",
        TEMPLATES,
    ),
    Mutation(
        "fields that are null reach the template",
        ENGINE_FORM,
        ' if value is not None or name == "content"',
        "",
        TEMPLATES,
    ),
    Mutation(
        "a list of no calls reaches the template of every engine",
        ENGINE_FORM,
        "if calls == [] and self.drops_no_calls:",
        "if False:",
        (*TEMPLATES, *PARITY),
    ),
    Mutation(
        "results of tools are joined for every role",
        ENGINE_FORM,
        'return role == "tool" and all(',
        "return all(",
        TEMPLATES,
    ),
    Mutation(
        "the calls of a response are written in the order of a chat's",
        "router/prompt/prompter.py",
        "return self._made_form if request.has_made_calls else self._form",
        "return self._form",
        ("tests/router/prompt/test_prompter.py",),
    ),
    Mutation(
        "a way is settled by the first value whatever the engine shows",
        "router/control/parity.py",
        "            elif made.tolist() == ids:\n                return value\n",
        "            else:\n                return value\n",
        PARITY,
    ),
    Mutation(
        "parsed arguments are assumed of an engine that keeps their text",
        "router/control/parity.py",
        "if getattr(form, refinement.name) not in refinement.values:",
        "if not ids:",
        PARITY,
    ),
    Mutation(
        "an effort shows at the end of a prompt alone, whatever the template",
        "router/prompt/prompter.py",
        "return THINKING not in (request.template_options or {}) and self._has_early_thinking",
        "return False",
        ("tests/router/prompt/test_prompter.py",),
    ),
)
