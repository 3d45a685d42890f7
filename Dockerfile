# The image of Knoll: the operator, and the runner that the pods of Runs take from it.
#
#     docker build -t knoll/knoll:0.1.0 .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The programs need nothing but the kernel, so that they run in any image that a Run's pod has. Naming the target keeps
# the flags away from build scripts and macros, which must be linked dynamically.
RUN target="$(rustc -vV | sed -n 's/^host: //p')" \
 && RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --target "$target" --package knoll --package knoll-runner --bins \
 && mkdir -p /out/usr/local/bin /out/etc/ssl/certs /out/tmp \
 && chmod 1777 /out/tmp \
 && cp "target/$target/release/knoll" "target/$target/release/knoll-runner" /out/usr/local/bin/ \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/

FROM scratch
COPY --from=build /out/ /
ENV PATH=/usr/local/bin
# Nobody in particular: neither the operator nor the copy of the runner into a pod's scratch volume needs more.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/knoll"]
