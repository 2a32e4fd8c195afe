// What palyra_skill.h promises: tools, and as much JSON as they need.

#include "palyra_skill.h"
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t size) {
  void *at = malloc(size ? size : 1);
  if (!at) abort();
  return at;
}

// Adds bytes and keeps a zero behind them.
static void add(palyra_writer *writer, const char *bytes, size_t length) {
  if (writer->room - writer->length <= length) {
    writer->room = (writer->length + length + 1) * 2;
    writer->at = realloc(writer->at, writer->room);
    if (!writer->at) abort();
  }
  memcpy(writer->at + writer->length, bytes, length);
  writer->length += length;
  writer->at[writer->length] = 0;
}

void palyra_write(palyra_writer *writer, const char *text) { add(writer, text, strlen(text)); }

void palyra_write_text(palyra_writer *writer, palyra_text text) { add(writer, text.at, text.length); }

void palyra_write_number(palyra_writer *writer, long long number) {
  char digits[24];
  size_t at = sizeof digits;
  unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest);
  if (number < 0) digits[--at] = '-';
  add(writer, digits + at, sizeof digits - at);
}

void palyra_write_string(palyra_writer *writer, palyra_text text) {
  static const char hex[] = "0123456789abcdef";
  add(writer, "\"", 1);
  for (size_t i = 0; i < text.length; i++) {
    unsigned char c = (unsigned char)text.at[i];
    if (c == '"' || c == '\\') {
      char escaped[2] = {'\\', (char)c};
      add(writer, escaped, 2);
    } else if (c < 0x20) {
      char escaped[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
      add(writer, escaped, 6);
    } else {
      add(writer, (const char *)&c, 1);
    }
  }
  add(writer, "\"", 1);
}

static const char *skip_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
  return at;
}

// The end of the JSON value that begins here; NULL if it has none. The host hands over valid JSON, so brackets match.
static const char *skip_value(const char *at, const char *end) {
  size_t depth = 0;
  while (at < end) {
    char c = *at;
    if (c == '"') {
      for (at++; at < end && *at != '"'; at++)
        if (*at == '\\') at++;
      if (at >= end) return NULL;
    } else if (c == '{' || c == '[') {
      depth++;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      depth--;
    } else if (depth == 0 && (c == ',' || c == ':')) {
      return at;
    }
    at++;
    if (depth == 0 && (c == '"' || c == '}' || c == ']')) return at;
  }
  return depth == 0 ? at : NULL;
}

bool palyra_member(palyra_text object, const char *name, palyra_text *value) {
  const char *at = object.at, *end = object.at + object.length;
  size_t length = strlen(name);
  at = skip_space(at, end);
  if (at == end || *at != '{') return false;
  at = skip_space(at + 1, end);
  while (at && at < end && *at == '"') {
    const char *key = at + 1;
    at = skip_value(at, end);
    if (!at) return false;
    bool found = (size_t)(at - 1 - key) == length && memcmp(key, name, length) == 0;
    at = skip_space(at, end);
    if (at == end || *at != ':') return false;
    const char *from = skip_space(at + 1, end);
    at = skip_value(from, end);
    if (!at) return false;
    if (found) {
      while (at > from && (at[-1] == ' ' || at[-1] == '\n' || at[-1] == '\t' || at[-1] == '\r')) at--;
      *value = (palyra_text){from, (size_t)(at - from)};
      return true;
    }
    at = skip_space(at, end);
    if (at == end || *at != ',') return false;
    at = skip_space(at + 1, end);
  }
  return false;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Four digits; -1 if they are none.
static long hex_four(const char *at, const char *end) {
  long value = 0;
  if (end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

static char *put_utf8(char *to, unsigned long c) {
  if (c < 0x80) {
    *to++ = (char)c;
  } else if (c < 0x800) {
    *to++ = (char)(0xc0 | c >> 6);
    *to++ = (char)(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *to++ = (char)(0xe0 | c >> 12);
    *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    *to++ = (char)(0x80 | (c & 0x3f));
  } else {
    *to++ = (char)(0xf0 | c >> 18);
    *to++ = (char)(0x80 | (c >> 12 & 0x3f));
    *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    *to++ = (char)(0x80 | (c & 0x3f));
  }
  return to;
}

bool palyra_member_string(palyra_text object, const char *name, palyra_text *value) {
  palyra_text raw;
  if (!palyra_member(object, name, &raw) || raw.length < 2 || raw.at[0] != '"') return false;
  const char *at = raw.at + 1, *end = raw.at + raw.length - 1;
  // Undoing escapes never makes a text longer.
  char *text = allocate(raw.length), *to = text;
  while (at < end) {
    if (*at != '\\') {
      *to++ = *at++;
      continue;
    }
    if (++at == end) return false;
    char c = *at++;
    switch (c) {
    case 'n': *to++ = '\n'; break;
    case 't': *to++ = '\t'; break;
    case 'r': *to++ = '\r'; break;
    case 'b': *to++ = '\b'; break;
    case 'f': *to++ = '\f'; break;
    case 'u': {
      long unit = hex_four(at, end);
      if (unit < 0) return false;
      at += 4;
      unsigned long code = (unsigned long)unit;
      if (unit >= 0xd800 && unit < 0xdc00) {
        long low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex_four(at + 2, end) : -1;
        if (low < 0xdc00 || low > 0xdfff) return false;
        at += 6;
        code = 0x10000 + ((unsigned long)(unit - 0xd800) << 10) + (unsigned long)(low - 0xdc00);
      } else if (unit >= 0xdc00 && unit < 0xe000) {
        return false;
      }
      to = put_utf8(to, code);
      break;
    }
    default: *to++ = c;
    }
  }
  *value = (palyra_text){text, (size_t)(to - text)};
  return true;
}

bool palyra_member_number(palyra_text object, const char *name, long long *value) {
  palyra_text raw;
  if (!palyra_member(object, name, &raw) || raw.length == 0 || raw.length > 19) return false;
  size_t at = raw.at[0] == '-';
  long long number = 0;
  if (at == raw.length) return false;
  for (; at < raw.length; at++) {
    if (raw.at[at] < '0' || raw.at[at] > '9') return false;
    if (__builtin_mul_overflow(number, 10LL, &number)) return false;
    if (__builtin_add_overflow(number, (long long)(raw.at[at] - '0'), &number)) return false;
  }
  *value = raw.at[0] == '-' ? -number : number;
  return true;
}

void palyra_log(palyra_skill_log_level_t level, const char *message) {
  skill_string_t text;
  skill_string_set(&text, message);
  palyra_skill_log_write(level, &text);
}

void palyra_describe(const palyra_tool *tools, size_t count, exports_palyra_skill_tools_list_tool_t *described) {
  described->len = count;
  described->ptr = allocate(count * sizeof *described->ptr);
  for (size_t i = 0; i < count; i++) {
    exports_palyra_skill_tools_tool_t *tool = &described->ptr[i];
    skill_string_dup(&tool->name, tools[i].name);
    skill_string_dup(&tool->description, tools[i].description);
    skill_string_dup(&tool->input_schema, tools[i].input_schema);
    tool->output_schema.is_some = tools[i].output_schema != NULL;
    if (tools[i].output_schema) skill_string_dup(&tool->output_schema.val, tools[i].output_schema);
  }
}

bool palyra_invoke(const palyra_tool *tools, size_t count, const skill_string_t *tool, const skill_string_t *input,
                   skill_string_t *output, exports_palyra_skill_tools_tool_error_t *error) {
  palyra_error why = {"unknown_tool", "this skill has no such tool"};
  for (size_t i = 0; i < count; i++) {
    if (strlen(tools[i].name) != tool->len || memcmp(tools[i].name, tool->ptr, tool->len) != 0) continue;
    palyra_writer writer = {0};
    why = (palyra_error){"failed", "the tool failed"};
    if (tools[i].run((palyra_text){(const char *)input->ptr, input->len}, &writer, &why)) {
      output->ptr = (uint8_t *)writer.at;
      output->len = writer.length;
      return true;
    }
  }
  skill_string_dup(&error->code, why.code);
  skill_string_dup(&error->message, why.message);
  return false;
}
