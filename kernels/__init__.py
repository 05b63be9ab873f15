"""Operations on KV pages, each beside a plain torch reference."""
