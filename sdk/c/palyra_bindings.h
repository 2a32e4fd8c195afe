// Made by `wit-bindgen c` 0.63 from `wit/skill.wit`. Not edited by hand.
#ifndef PALYRA_BINDINGS_H
#define PALYRA_BINDINGS_H
#ifdef __cplusplus
extern "C" {
#endif

#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct skill_string_t {
  uint8_t*ptr;
  size_t len;
} skill_string_t;

typedef uint8_t palyra_skill_log_level_t;

#define PALYRA_SKILL_LOG_LEVEL_DEBUG 0
#define PALYRA_SKILL_LOG_LEVEL_INFO 1
#define PALYRA_SKILL_LOG_LEVEL_WARNING 2
#define PALYRA_SKILL_LOG_LEVEL_ERROR 3

typedef struct {
  skill_string_t f0;
  skill_string_t f1;
} skill_tuple2_string_string_t;

typedef struct {
  skill_tuple2_string_string_t *ptr;
  size_t len;
} skill_list_tuple2_string_string_t;

typedef struct {
  uint8_t *ptr;
  size_t len;
} skill_list_u8_t;

typedef struct {
  bool is_some;
  uint32_t val;
} skill_option_u32_t;

// One request. The host may attach credentials that are bound to the endpoint; the guest never sees them.
typedef struct palyra_skill_http_request_t {
  // `GET`, `POST`, …
  skill_string_t   method;
  // An absolute `http` or `https` URL.
  skill_string_t   url;
  // Names and values, in order.
  skill_list_tuple2_string_string_t   headers;
  // The body; empty for none.
  skill_list_u8_t   body;
  // When to give up; the deadline of the call holds in any case.
  skill_option_u32_t   timeout_ms;
} palyra_skill_http_request_t;

// The reply to a request, whatever its status. Redirects are not followed.
typedef struct palyra_skill_http_response_t {
  uint16_t   status;
  skill_list_tuple2_string_string_t   headers;
  skill_list_u8_t   body;
} palyra_skill_http_response_t;

typedef struct palyra_skill_http_error_t {
  uint8_t tag;
  union {
    skill_string_t     denied;
    skill_string_t     invalid;
    skill_string_t     unreachable;
    uint64_t     too_large;
  } val;
} palyra_skill_http_error_t;

// Neither grant nor operator allows it; the text says what is missing.
#define PALYRA_SKILL_HTTP_ERROR_DENIED 0
// The request makes no sense.
#define PALYRA_SKILL_HTTP_ERROR_INVALID 1
// The host could not be reached, or broke off.
#define PALYRA_SKILL_HTTP_ERROR_UNREACHABLE 2
// No reply in time.
#define PALYRA_SKILL_HTTP_ERROR_TIMED_OUT 3
// The reply is larger than this many bytes.
#define PALYRA_SKILL_HTTP_ERROR_TOO_LARGE 4

typedef struct {
  bool is_err;
  union {
    palyra_skill_http_response_t ok;
    palyra_skill_http_error_t err;
  } val;
} palyra_skill_http_result_response_error_t;

typedef struct palyra_skill_secrets_error_t {
  uint8_t tag;
  union {
    skill_string_t     unavailable;
  } val;
} palyra_skill_secrets_error_t;

// The grant does not name this secret.
#define PALYRA_SKILL_SECRETS_ERROR_DENIED 0
// The vault holds no such secret.
#define PALYRA_SKILL_SECRETS_ERROR_NOT_FOUND 1
// The vault cannot be asked now.
#define PALYRA_SKILL_SECRETS_ERROR_UNAVAILABLE 2

typedef struct {
  bool is_err;
  union {
    skill_list_u8_t ok;
    palyra_skill_secrets_error_t err;
  } val;
} palyra_skill_secrets_result_list_u8_error_t;

typedef struct palyra_skill_storage_error_t {
  uint8_t tag;
  union {
    uint64_t     quota_exceeded;
    skill_string_t     unavailable;
  } val;
} palyra_skill_storage_error_t;

// The value would not fit within this many bytes in all.
#define PALYRA_SKILL_STORAGE_ERROR_QUOTA_EXCEEDED 0
// A key is 1 to 100 bytes of text without control characters.
#define PALYRA_SKILL_STORAGE_ERROR_INVALID_KEY 1
// The store cannot be used now.
#define PALYRA_SKILL_STORAGE_ERROR_UNAVAILABLE 2

typedef struct {
  bool is_some;
  skill_list_u8_t val;
} skill_option_list_u8_t;

typedef struct {
  bool is_err;
  union {
    skill_option_list_u8_t ok;
    palyra_skill_storage_error_t err;
  } val;
} palyra_skill_storage_result_option_list_u8_error_t;

typedef struct {
  bool is_err;
  union {
    palyra_skill_storage_error_t err;
  } val;
} palyra_skill_storage_result_void_error_t;

typedef struct {
  bool is_err;
  union {
    bool ok;
    palyra_skill_storage_error_t err;
  } val;
} palyra_skill_storage_result_bool_error_t;

typedef struct {
  skill_string_t *ptr;
  size_t len;
} skill_list_string_t;

typedef struct {
  bool is_err;
  union {
    skill_list_string_t ok;
    palyra_skill_storage_error_t err;
  } val;
} palyra_skill_storage_result_list_string_error_t;

typedef struct {
  bool is_some;
  skill_string_t val;
} skill_option_string_t;

// One tool, as its author describes it.
typedef struct exports_palyra_skill_tools_tool_t {
  // Lower-case letters, digits, `_` and `.`.
  skill_string_t   name;
  // One sentence for the model and for whoever approves.
  skill_string_t   description;
  // The JSON Schema of the input.
  skill_string_t   input_schema;
  // The JSON Schema of the output.
  skill_option_string_t   output_schema;
} exports_palyra_skill_tools_tool_t;

// Why a tool did not do what it was asked.
typedef struct exports_palyra_skill_tools_tool_error_t {
  // A short stable name, such as `not_found`.
  skill_string_t   code;
  // A sentence for a person.
  skill_string_t   message;
} exports_palyra_skill_tools_tool_error_t;

typedef struct {
  exports_palyra_skill_tools_tool_t *ptr;
  size_t len;
} exports_palyra_skill_tools_list_tool_t;

typedef struct {
  bool is_err;
  union {
    skill_string_t ok;
    exports_palyra_skill_tools_tool_error_t err;
  } val;
} exports_palyra_skill_tools_result_string_tool_error_t;

// Imported Functions from `palyra:skill/log@1.0.0`
// Adds a line to the log of this call.
extern void palyra_skill_log_write(palyra_skill_log_level_t level, skill_string_t *message);

// Imported Functions from `palyra:skill/http@1.0.0`
// Sends one request and waits for its reply.
extern bool palyra_skill_http_send(palyra_skill_http_request_t *request, palyra_skill_http_response_t *ret, palyra_skill_http_error_t *err);

// Imported Functions from `palyra:skill/secrets@1.0.0`
// Reads one secret.
extern bool palyra_skill_secrets_read(skill_string_t *scope, skill_string_t *key, skill_list_u8_t *ret, palyra_skill_secrets_error_t *err);

// Imported Functions from `palyra:skill/storage@1.0.0`
// The value of a key.
extern bool palyra_skill_storage_read(skill_string_t *key, skill_option_list_u8_t *ret, palyra_skill_storage_error_t *err);
// Puts a value in the place of whatever was there.
extern bool palyra_skill_storage_write(skill_string_t *key, skill_list_u8_t *value, palyra_skill_storage_error_t *err);
// Removes a key; says whether it was there.
extern bool palyra_skill_storage_delete(skill_string_t *key, bool *ret, palyra_skill_storage_error_t *err);
// Every key that begins like this, in order.
extern bool palyra_skill_storage_keys(skill_string_t *prefix, skill_list_string_t *ret, palyra_skill_storage_error_t *err);

// Exported Functions from `palyra:skill/tools@1.0.0`
void exports_palyra_skill_tools_describe(exports_palyra_skill_tools_list_tool_t *ret);
bool exports_palyra_skill_tools_invoke(skill_string_t *tool, skill_string_t *input_json, skill_string_t *ret, exports_palyra_skill_tools_tool_error_t *err);

// Helper Functions

void skill_tuple2_string_string_free(skill_tuple2_string_string_t *ptr);

void skill_list_tuple2_string_string_free(skill_list_tuple2_string_string_t *ptr);

void skill_list_u8_free(skill_list_u8_t *ptr);

void skill_option_u32_free(skill_option_u32_t *ptr);

void palyra_skill_http_request_free(palyra_skill_http_request_t *ptr);

void palyra_skill_http_response_free(palyra_skill_http_response_t *ptr);

void palyra_skill_http_error_free(palyra_skill_http_error_t *ptr);

void palyra_skill_http_result_response_error_free(palyra_skill_http_result_response_error_t *ptr);

void palyra_skill_secrets_error_free(palyra_skill_secrets_error_t *ptr);

void palyra_skill_secrets_result_list_u8_error_free(palyra_skill_secrets_result_list_u8_error_t *ptr);

void palyra_skill_storage_error_free(palyra_skill_storage_error_t *ptr);

void skill_option_list_u8_free(skill_option_list_u8_t *ptr);

void palyra_skill_storage_result_option_list_u8_error_free(palyra_skill_storage_result_option_list_u8_error_t *ptr);

void palyra_skill_storage_result_void_error_free(palyra_skill_storage_result_void_error_t *ptr);

void palyra_skill_storage_result_bool_error_free(palyra_skill_storage_result_bool_error_t *ptr);

void skill_list_string_free(skill_list_string_t *ptr);

void palyra_skill_storage_result_list_string_error_free(palyra_skill_storage_result_list_string_error_t *ptr);

void skill_option_string_free(skill_option_string_t *ptr);

void exports_palyra_skill_tools_tool_free(exports_palyra_skill_tools_tool_t *ptr);

void exports_palyra_skill_tools_tool_error_free(exports_palyra_skill_tools_tool_error_t *ptr);

void exports_palyra_skill_tools_list_tool_free(exports_palyra_skill_tools_list_tool_t *ptr);

void exports_palyra_skill_tools_result_string_tool_error_free(exports_palyra_skill_tools_result_string_tool_error_t *ptr);

// Sets the string `ret` to reference the input string `s` without copying it
void skill_string_set(skill_string_t *ret, const char*s);

// Creates a copy of the input nul-terminated string `s` and
// stores it into the component model string `ret`.
void skill_string_dup(skill_string_t *ret, const char*s);

// Creates a copy of the input string `s` with length `len` and
// stores it into the component model string `ret`.
// The length is specified in code units (bytes for UTF-8, 16-bit values for UTF-16).
void skill_string_dup_n(skill_string_t *ret, const char*s, size_t len);

// Deallocates the string pointed to by `ret`, deallocating
// the memory behind the string.
void skill_string_free(skill_string_t *ret);

#ifdef __cplusplus
}
#endif
#endif
