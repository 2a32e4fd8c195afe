//! The error model that gRPC clients in every language know: `google.rpc.Status` with typed details.
//!
//! Four messages of it, by their field numbers; nothing else of that package is used.

use crate::v1::ErrorDetail;
use prost::Message as _;
use std::time::Duration;
use tonic::Code;

/// What the codes belong to.
const DOMAIN: &str = "palyra";
const OWN: &str = "type.googleapis.com/palyra.v1.ErrorDetail";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Span>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn any(type_url: &str, message: &impl prost::Message) -> Any {
    Any { type_url: type_url.to_owned(), value: message.encode_to_vec() }
}

/// A detail of ours as standard clients read it.
pub(super) fn packed(code: Code, detail: &ErrorDetail, retry_after: Option<Duration>) -> Vec<u8> {
    let info = ErrorInfo { reason: detail.code.to_ascii_uppercase(), domain: DOMAIN.to_owned() };
    let mut details = vec![any(OWN, detail), any(ERROR_INFO, &info)];
    if let Some(wait) = retry_after {
        let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        let nanos = i32::try_from(wait.subsec_nanos()).unwrap_or(0);
        details.push(any(RETRY_INFO, &RetryInfo { retry_delay: Some(Span { seconds, nanos }) }));
    }
    RpcStatus { code: code.into(), message: detail.message.clone(), details }.encode_to_vec()
}

/// Our own detail, if there is one.
pub(super) fn detail(bytes: &[u8]) -> Option<ErrorDetail> {
    let status = RpcStatus::decode(bytes).ok()?;
    let own = status.details.into_iter().find(|any| any.type_url == OWN)?;
    ErrorDetail::decode(own.value.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_client_finds_the_code_and_the_wait() {
        let detail =
            ErrorDetail { code: "rate_limited".to_owned(), message: "too often".to_owned(), ..Default::default() };
        let bytes = packed(Code::ResourceExhausted, &detail, Some(Duration::from_millis(1500)));
        let status = RpcStatus::decode(bytes.as_slice()).unwrap();
        assert_eq!((status.code, status.message.as_str()), (8, "too often"));
        let kinds: Vec<_> = status.details.iter().map(|any| any.type_url.as_str()).collect();
        assert_eq!(kinds, [OWN, ERROR_INFO, RETRY_INFO]);
        let info = ErrorInfo::decode(status.details[1].value.as_slice()).unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("RATE_LIMITED", "palyra"));
        let wait = RetryInfo::decode(status.details[2].value.as_slice()).unwrap().retry_delay.unwrap();
        assert_eq!((wait.seconds, wait.nanos), (1, 500_000_000));
        assert_eq!(super::detail(&bytes), Some(detail));
        assert_eq!(super::detail(b""), None);
        assert_eq!(super::detail(b"rubbish"), None);
    }
}
