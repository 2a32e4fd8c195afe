//! The traits that this host implements, generated from `wit/`.
//!
//! Sockets are missing on purpose: they are always denied, which needs no code for each function (`denied.rs`).

wasmtime::component::bindgen!({
    path: "../../wit",
    inline: "
        package palyra:host;

        world host {
            import palyra:skill/log@1.0.0;
            import palyra:skill/http@1.0.0;
            import palyra:skill/secrets@1.0.0;
            import palyra:skill/storage@1.0.0;
            import wasi:io/error@0.2.12;
            import wasi:io/poll@0.2.12;
            import wasi:io/streams@0.2.12;
            import wasi:clocks/monotonic-clock@0.2.12;
            import wasi:clocks/wall-clock@0.2.12;
            import wasi:random/random@0.2.12;
            import wasi:random/insecure@0.2.12;
            import wasi:random/insecure-seed@0.2.12;
            import wasi:cli/environment@0.2.12;
            import wasi:cli/exit@0.2.12;
            import wasi:cli/stdin@0.2.12;
            import wasi:cli/stdout@0.2.12;
            import wasi:cli/stderr@0.2.12;
            import wasi:cli/terminal-input@0.2.12;
            import wasi:cli/terminal-output@0.2.12;
            import wasi:cli/terminal-stdin@0.2.12;
            import wasi:cli/terminal-stdout@0.2.12;
            import wasi:cli/terminal-stderr@0.2.12;
            import wasi:filesystem/types@0.2.12;
            import wasi:filesystem/preopens@0.2.12;
            import wasi:http/types@0.2.12;
            import wasi:http/outgoing-handler@0.2.12;
        }
    ",
    imports: { default: trappable },
    with: {
        "wasi:io/error.error": crate::wasi::IoError,
        "wasi:io/poll.pollable": crate::wasi::Pollable,
        "wasi:io/streams.input-stream": crate::wasi::InputStream,
        "wasi:io/streams.output-stream": crate::wasi::OutputStream,
        "wasi:cli/terminal-input.terminal-input": crate::wasi::Nothing,
        "wasi:cli/terminal-output.terminal-output": crate::wasi::Nothing,
        "wasi:filesystem/types.descriptor": crate::wasi::Descriptor,
        "wasi:filesystem/types.directory-entry-stream": crate::wasi::Entries,
        "wasi:http/types.fields": crate::wasi::Fields,
        "wasi:http/types.incoming-request": crate::wasi::Nothing,
        "wasi:http/types.outgoing-request": crate::wasi::OutgoingRequest,
        "wasi:http/types.request-options": crate::wasi::RequestOptions,
        "wasi:http/types.response-outparam": crate::wasi::Nothing,
        "wasi:http/types.incoming-response": crate::wasi::IncomingResponse,
        "wasi:http/types.incoming-body": crate::wasi::IncomingBody,
        "wasi:http/types.future-trailers": crate::wasi::FutureTrailers,
        "wasi:http/types.outgoing-response": crate::wasi::Nothing,
        "wasi:http/types.outgoing-body": crate::wasi::OutgoingBody,
        "wasi:http/types.future-incoming-response": crate::wasi::FutureResponse,
    },
});
