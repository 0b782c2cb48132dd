FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /kbroker ./cmd/kbroker && mkdir /data

FROM scratch
COPY --from=build /kbroker /kbroker
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
ENV KBROKER_DATA=/data
VOLUME /data
EXPOSE 9092
ENTRYPOINT ["/kbroker"]
