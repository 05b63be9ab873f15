"""The witness of answers to calls that were not placed. No state."""


class Bystander:
    """Nothing was placed that could make progress."""

    def see_first_byte(self) -> None:
        """See `Witness`."""

    def see_whole_answer(self) -> None:
        """See `Witness`."""

    def see_first_output(self) -> None:
        """See `Witness`."""

    def see_progress(self, output_tokens: int) -> None:
        """See `Witness`."""

    def see_full_client(self) -> None:
        """See `Witness`."""

    def see_ready_client(self) -> None:
        """See `Witness`."""

    def keep_response(self, response_id: str) -> None:
        """See `Witness`."""
