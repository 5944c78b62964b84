# From the repository's root: docker build -f docs/deploy/daemon.Dockerfile -t janus .
# The command `janus`, for a daemon and for members of it (compose.daemon.yaml). podman and buildah build it as well.
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /janus
COPY . .
RUN cargo build --release --locked -p janus-cli

# The program needs libc, libm and libgcc_s, which this image has.
FROM gcr.io/distroless/cc-debian12
COPY --from=build /janus/target/release/janus /usr/local/bin/janus
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/janus"]
