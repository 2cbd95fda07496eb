# Three images: docker build --target server | region | ctl .
# Their steps are run by tests/system/test_packages.py as well, where there is no Docker.

FROM debian:12 AS build
WORKDIR /src
COPY config/install config/packages config/
RUN config/install build package
COPY . .
RUN cmake -G Ninja -S . -B /build -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTS=OFF
RUN ninja -C /build
RUN cd /build && cpack -B /packages

FROM debian:12 AS ctl
COPY --from=build /packages /packages
RUN apt-get update && apt-get install -y --no-install-recommends /packages/sandboxctl_*.deb && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["/usr/bin/sandboxctl"]

FROM debian:12 AS server
COPY --from=build /packages /packages
RUN apt-get update && apt-get install -y --no-install-recommends /packages/sandboxd_*.deb /packages/sandboxctl_*.deb && rm -rf /var/lib/apt/lists/*
USER sandboxd
EXPOSE 8080
ENTRYPOINT ["/usr/bin/sandboxd", "--config", "/etc/sandboxd/sandboxd.conf"]

# The region host makes namespaces and control groups: it is run with --privileged, as root.
FROM debian:12 AS region
COPY --from=build /packages /packages
RUN apt-get update && apt-get install -y --no-install-recommends /packages/sandbox-region_*.deb && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["/usr/bin/sandbox-region", "--config", "/etc/sandboxd/region.conf"]
