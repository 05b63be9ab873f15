"""What one HTTP request asks of a rank, whatever endpoint it came through: prompts, choices, sampling."""

import msgspec

from engine_shim.engine.admission.request import EngineRequest, SamplingParams


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts to continue, each `choices` times."""

    #: Name that the client knows; aborts go by it.
    public_id: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: SamplingParams
    #: Answers for each prompt.
    choices: int = 1
    stops: tuple[str, ...] = ()
    #: Rank asked for; None lets the server choose.
    dp_rank: int | None = None
    cache_salt: str | None = None
    session_id: str | None = None

    def engine_requests(self, serial: int, arrival_s: float) -> tuple[EngineRequest, ...]:
        """One engine request an answer, all choices of a prompt next to each other.

        `serial` makes the engine's names unique where clients repeat theirs.
        """
        return tuple(
            EngineRequest(
                request_id=f"{serial}-{prompt_index * self.choices + choice}",
                prompt_ids=prompt,
                sampling=self._sampling_of(choice),
                cache_salt=self.cache_salt,
                session_id=self.session_id,
                arrival_s=arrival_s,
            )
            for prompt_index, prompt in enumerate(self.prompts)
            for choice in range(self.choices)
        )

    def _sampling_of(self, choice: int) -> SamplingParams:
        """Choices of one seeded request differ, each in a repeatable way."""
        if self.sampling.seed is None or choice == 0:
            return self.sampling
        return msgspec.structs.replace(self.sampling, seed=self.sampling.seed + choice)
