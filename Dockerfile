# One image for the router and the engine; --build-arg EXTRAS= leaves torch out for a router alone.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG EXTRAS="[engine]"
# The CPU wheels of torch: the engine of the compose file needs no GPU.
ARG TORCH_INDEX="https://download.pytorch.org/whl/cpu"
RUN python -m venv /opt/dovecote \
 && /opt/dovecote/bin/pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c constraints.txt ".${EXTRAS}"

FROM python:3.12-slim
COPY --from=build /opt/dovecote /opt/dovecote
ENV PATH="/opt/dovecote/bin:$PATH" PYTHONUNBUFFERED=1
RUN useradd --create-home dovecote
USER dovecote
ENTRYPOINT ["dovecote"]
CMD ["--help"]
