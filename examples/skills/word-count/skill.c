// Counts the words, lines and bytes of a text.

#include "palyra_skill.h"

static bool count(palyra_text input, palyra_writer *output, palyra_error *error) {
  palyra_text text;
  if (!palyra_member_string(input, "text", &text)) {
    *error = (palyra_error){"invalid_input", "`text` must be a string"};
    return false;
  }
  long long words = 0, lines = text.length > 0;
  bool within = false;
  for (size_t i = 0; i < text.length; i++) {
    bool space = text.at[i] == ' ' || text.at[i] == '\n' || text.at[i] == '\t' || text.at[i] == '\r';
    words += !space && !within;
    within = !space;
    lines += text.at[i] == '\n' && i + 1 < text.length;
  }
  palyra_write(output, "{\"words\":");
  palyra_write_number(output, words);
  palyra_write(output, ",\"lines\":");
  palyra_write_number(output, lines);
  palyra_write(output, ",\"bytes\":");
  palyra_write_number(output, (long long)text.length);
  palyra_write(output, "}");
  return true;
}

static const palyra_tool tools[] = {
    {"count", "Counts the words, lines and bytes of a text.",
     "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}",
     "{\"type\":\"object\",\"properties\":{\"words\":{\"type\":\"integer\"},\"lines\":{\"type\":\"integer\"},"
     "\"bytes\":{\"type\":\"integer\"}},\"required\":[\"words\",\"lines\",\"bytes\"]}",
     count},
};

PALYRA_SKILL(tools)
