// Write skills for Palyra in C: a list of tools, each a function from JSON text to JSON text.
//
//     static bool shout(palyra_text input, palyra_writer *output, palyra_error *error) { ... return true; }
//
//     static const palyra_tool tools[] = {
//         {"shout", "Writes a text in capital letters.", "{\"type\":\"object\"}", NULL, shout},
//     };
//     PALYRA_SKILL(tools)
//
// Each call has an instance of its own: what is allocated and not freed is gone with it. The host's interfaces are the functions
// `palyra_skill_*` of palyra_bindings.h; call only what you need, because each has to be granted.

#ifndef PALYRA_SKILL_H
#define PALYRA_SKILL_H

#include "palyra_bindings.h"

// A piece of text; not terminated.
typedef struct {
  const char *at;
  size_t length;
} palyra_text;

// Text that grows. Begin with zeroes.
typedef struct {
  char *at;
  size_t length;
  size_t room;
} palyra_writer;

// Why a tool did not do what it was asked: a short stable name, and a sentence for a person.
typedef struct {
  const char *code;
  const char *message;
} palyra_error;

// A tool. `run` writes its output, or fills in the error and returns false.
typedef struct {
  const char *name;
  const char *description;
  const char *input_schema;
  const char *output_schema; // NULL for none
  bool (*run)(palyra_text input, palyra_writer *output, palyra_error *error);
} palyra_tool;

// Adds text as it is.
void palyra_write(palyra_writer *writer, const char *text);
// Adds a piece of text as it is.
void palyra_write_text(palyra_writer *writer, palyra_text text);
// Adds a number.
void palyra_write_number(palyra_writer *writer, long long number);
// Adds text as a JSON string, with quotes.
void palyra_write_string(palyra_writer *writer, palyra_text text);

// Finds a member of the JSON object `object` and returns its text as it stands there, with quotes if it is a string.
bool palyra_member(palyra_text object, const char *name, palyra_text *value);
// The same for a string, without quotes and with escapes undone. The text is allocated.
bool palyra_member_string(palyra_text object, const char *name, palyra_text *value);
// The same for a whole number.
bool palyra_member_number(palyra_text object, const char *name, long long *value);

// Adds a line to the log of this call.
void palyra_log(palyra_skill_log_level_t level, const char *message);

// What the host calls; used by the macro below.
void palyra_describe(const palyra_tool *tools, size_t count, exports_palyra_skill_tools_list_tool_t *described);
bool palyra_invoke(const palyra_tool *tools, size_t count, const skill_string_t *tool, const skill_string_t *input,
                   skill_string_t *output, exports_palyra_skill_tools_tool_error_t *error);

#define PALYRA_SKILL(tools)                                                                                            \
  void exports_palyra_skill_tools_describe(exports_palyra_skill_tools_list_tool_t *described) {                        \
    palyra_describe(tools, sizeof(tools) / sizeof(*(tools)), described);                                               \
  }                                                                                                                    \
  bool exports_palyra_skill_tools_invoke(skill_string_t *tool, skill_string_t *input, skill_string_t *output,          \
                                         exports_palyra_skill_tools_tool_error_t *error) {                             \
    return palyra_invoke(tools, sizeof(tools) / sizeof(*(tools)), tool, input, output, error);                         \
  }

#endif
