// A rendering whose work and memory a test looks at.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/syntax/parser.h"
#include "engine/chat/template.h"
#include "engine/compute/interrupt.h"

namespace troupe::engine::chat::test {

struct Metered {
  std::string error;  // empty: it was rendered
  bool was_interrupted = false;
  std::size_t output_bytes = 0;
  std::uint64_t steps = 0, longest_piece = 0;
  std::size_t most_bytes = 0;
};

// Over a conversation of one short message. time, interrupt: as of Meter.
inline Metered metered(std::string_view source, TimeBudget* time = nullptr,
                       const std::atomic<bool>* interrupt = nullptr, const Limits& limits = {}) {
  Metered made;
  try {
    const ParsedTemplate parsed = parse_template(source, limits);
    Interpreter interpreter(limits, time, interrupt, [](std::string_view format) { return format_time(format, {}); });
    Heap& heap = interpreter.heap();
    try {
      const Json said = Json::Object{{"role", "user"}, {"content", "ab"}};
      interpreter.set_variable("messages", heap.from_json(Json::List{said}));
      made.output_bytes = interpreter.render(parsed.body).size();
    } catch (const TemplateError& error) {
      made.error = error.message();
    } catch (const Interrupted&) {
      made.was_interrupted = true;
    }
    made.steps = heap.meter().steps();
    made.longest_piece = heap.meter().longest_piece();
    made.most_bytes = heap.account().most();
  } catch (const TemplateError& error) {
    made.error = error.message();
  }
  return made;
}

}  // namespace troupe::engine::chat::test
