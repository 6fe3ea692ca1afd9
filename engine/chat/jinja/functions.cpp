// Global functions of templates.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/jinja/runtime.h"

namespace troupe::engine::chat {
namespace {

Value range_function(Runtime& runtime, const Value&, const CallArguments& arguments) {
  const BoundArguments bound("range", arguments, {"start", "stop", "step"});
  const std::size_t given = arguments.positional.size();
  if (given == 0 || !arguments.named.empty()) throw TemplateError("range expected at least 1 argument, got 0");
  for (std::size_t i = 0; i < given; ++i)
    if (!bound.required(i).is_whole()) fail_type("range() needs integers", bound.required(i));
  const std::int64_t start = given > 1 ? bound.integer(0, 0) : 0, stop = bound.integer(given > 1 ? 1 : 0, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  Values items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange)
      throw TemplateError(fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange));
    runtime.heap().step();
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return runtime.heap().list(std::move(items));
}

// dict(a=1), dict({...}, a=1), dict([(key, value)])
Value dict_function(Runtime& runtime, const Value&, const CallArguments& arguments) {
  if (arguments.positional.size() > 1) throw TemplateError("dict expected at most 1 argument");
  const Value map = runtime.heap().map();
  if (!arguments.positional.empty()) {
    const Value& first = arguments.positional[0];
    if (first.is(Kind::map)) {
      for (const auto& [key, value] : first.map().items) runtime.heap().set(map.map(), key, value);
    } else {
      for (const Value& each : runtime.iterate(first)) {
        const Values& pair = runtime.iterate(each);
        if (pair.size() != 2) throw TemplateError("a dictionary is made of pairs");
        runtime.heap().set(map.map(), pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) runtime.heap().set(map.map(), runtime.text(name), value);
  return map;
}

Value namespace_function(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const Value members = dict_function(runtime, self, arguments);
  return Value::of(runtime.heap().own(std::unique_ptr<Namespace>(new Namespace(&members.map()))));
}

Value raise_function(Runtime& runtime, const Value&, const CallArguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"});
  const Value message = runtime.as_text(bound.required(0));
  // One byte more than is shown, so that it is seen where the rest was cut off.
  throw TemplateError(std::string(message.text().bytes().substr(0, kMaxErrorText + 1)));
}

Value now_function(Runtime& runtime, const Value&, const CallArguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"});
  if (!runtime.now()) throw TemplateError("strftime_now() is called, but no time was given");
  if (bound.text(0).size() > kMaxTimeFormat)
    throw TemplateError(fmt::format("strftime_now(): the format is longer than {} bytes", kMaxTimeFormat));
  runtime.heap().step(bound.text(0).size());  // each byte may name a month
  return runtime.text(runtime.now()(bound.text(0).bytes()));
}

Value cycler_function(Runtime& runtime, const Value&, const CallArguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    throw TemplateError("at least one item has to be provided");
  return Value::of(runtime.heap().own(std::unique_ptr<Cycler>(new Cycler(arguments.positional))));
}

Value joiner_function(Runtime& runtime, const Value&, const CallArguments& arguments) {
  const BoundArguments bound("joiner", arguments, {"sep"});
  return Value::of(
      runtime.heap().own(std::unique_ptr<Joiner>(new Joiner(bound[0] != nullptr ? *bound[0] : runtime.text(", ")))));
}

}  // namespace

Function find_global_function(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Function>, 7> kFunctions = {{
      {"range", range_function},
      {"dict", dict_function},
      {"namespace", namespace_function},
      {"raise_exception", raise_function},
      {"strftime_now", now_function},
      {"cycler", cycler_function},
      {"joiner", joiner_function},
  }};
  const auto* const found =
      std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& each) { return each.first == name; });
  return found == kFunctions.end() ? nullptr : found->second;
}

}  // namespace troupe::engine::chat
