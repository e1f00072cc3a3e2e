# Two stages: the first compiles one static binary, the second holds nothing else.
#
# Without a network: have the two base images locally and either run `go mod vendor` first (the go command uses vendor/ by
# itself) or keep the cache mount of an earlier build. Nothing but modules is fetched.
ARG GO_IMAGE=golang:1.26.8
FROM ${GO_IMAGE} AS build
ARG VERSION=
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /rootfs/usr/bin/monolith ./cmd/monolith
# The data folder and /tmp belong to the user below; the certificates are for brokers behind TLS.
RUN mkdir -p /rootfs/data /rootfs/tmp /rootfs/etc/ssl/certs \
 && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ \
 && echo 'monolith:x:65532:65532:monolith:/data:/sbin/nologin' > /rootfs/etc/passwd

FROM scratch
COPY --from=build --chown=65532:65532 /rootfs/ /
USER 65532:65532
WORKDIR /data
VOLUME /data
ENTRYPOINT ["/usr/bin/monolith"]
CMD ["help"]
