// The skill `{{name}}`.

#include "palyra_skill.h"

static bool greet(palyra_text input, palyra_writer *output, palyra_error *error) {
  palyra_text name;
  if (!palyra_member_string(input, "name", &name)) {
    *error = (palyra_error){"invalid_input", "`name` must be a string"};
    return false;
  }
  if (name.length == 0) {
    *error = (palyra_error){"empty_name", "there is nobody to greet"};
    return false;
  }
  palyra_writer greeting = {0};
  palyra_write(&greeting, "Hello, ");
  palyra_write_text(&greeting, name);
  palyra_write(&greeting, "!");
  palyra_write(output, "{\"greeting\":");
  palyra_write_string(output, (palyra_text){greeting.at, greeting.length});
  palyra_write(output, "}");
  return true;
}

static const palyra_tool tools[] = {
    {"greet", "Greets somebody by name.",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]}",
     "{\"type\":\"object\",\"properties\":{\"greeting\":{\"type\":\"string\"}},\"required\":[\"greeting\"]}", greet},
};

PALYRA_SKILL(tools)
