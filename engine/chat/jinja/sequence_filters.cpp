// Filters of lists and dictionaries.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/python_text.h"
#include "engine/chat/values/sorting.h"

namespace troupe::engine::chat {
namespace {

Value generator(Runtime& runtime, Values items) { return runtime.heap().list(std::move(items), ListForm::generator); }

Value length_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("length", arguments, {});
  return Value::integer(runtime.length(input));
}

// Items of a list of their own.
Values copied(Runtime& runtime, const Values& items) {
  Values copies;
  copies.reserve(items.size());
  for (const Value& each : items) {
    runtime.heap().step();
    copies.push_back(each);
  }
  return copies;
}

Value list_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("list", arguments, {});
  return runtime.heap().list(copied(runtime, runtime.iterate(input)));
}

Value first_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("first", arguments, {});
  if (input.is(Kind::text) && !input.text().empty()) return runtime.item(input, Value::integer(0));
  const Values& items = runtime.iterate(input);
  return items.empty() ? runtime.heap().undefined("No first item, sequence was empty.") : items.front();
}

Value last_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("last", arguments, {});
  if (input.is(Kind::text) && !input.text().empty()) return runtime.item(input, Value::integer(-1));
  if (input.is(Kind::list) && input.list().form == ListForm::generator)
    throw TemplateError("'generator' object is not reversible");
  const Values& items = runtime.iterate(input);
  return items.empty() ? runtime.heap().undefined("No last item, sequence was empty.") : items.back();
}

Value reverse_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  const Value back = Value::integer(-1);
  if (input.is(Kind::text)) return runtime.slice(input, nullptr, nullptr, &back);
  Values items = copied(runtime, runtime.iterate(input));
  std::reverse(items.begin(), items.end());
  return generator(runtime, std::move(items));
}

Value join_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
  const Value separator = bound[0] != nullptr ? runtime.as_text(*bound[0]) : runtime.text("");
  Text joined;
  bool is_first = true;
  for (const Value& each : runtime.iterate(input)) {
    if (!is_first) joined.append(separator.text(), runtime.meter());
    is_first = false;
    append_text(bound.set(1) != nullptr ? runtime.path(each, *bound.set(1)) : each, runtime.heap(), joined);
  }
  return runtime.text(std::move(joined));
}

Value items_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  if (input.is(Kind::undefined)) return generator(runtime, {});
  if (!input.is(Kind::map)) throw TemplateError("Can only get item pairs from a mapping.");
  return generator(runtime, copied(runtime, runtime.iterate(find_map_method("items")(runtime, input, {}))));
}

// What items are sorted and compared by: an attribute, or several; texts without case unless it counts.
Value key_of(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  const auto plain = [&](const Value& value) {
    if (case_sensitive || !value.is(Kind::text)) return value;
    return runtime.text(change_case(value.text(), Case::lower, runtime.meter()));
  };
  if (attribute == nullptr) return plain(item);
  const std::string_view comma = ",";
  if (!attribute->is(Kind::text) ||
      find_bytes(attribute->text().bytes(), comma, runtime.meter()) == std::string_view::npos)
    return plain(runtime.path(item, *attribute));
  Values parts;
  for (const Span& part : split(attribute->text().bytes(), &comma, -1, runtime.meter()))
    parts.push_back(plain(runtime.path(item, runtime.part(attribute->text(), part.begin, part.end))));
  return runtime.heap().list(std::move(parts));
}

Values sorted(Runtime& runtime, const Values& items, const Value* attribute, bool case_sensitive, bool reverse) {
  ChargedVector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (const Value& each : items) {
    runtime.heap().step();
    keyed.emplace_back(key_of(runtime, each, attribute, case_sensitive), each);
  }
  sort_stably(keyed, [&](const auto& a, const auto& b) {
    return reverse ? is_less(b.first, a.first, runtime.heap()) : is_less(a.first, b.first, runtime.heap());
  });
  Values sorted_items;
  for (auto& each : keyed) {
    runtime.heap().step();
    sorted_items.push_back(std::move(each.second));
  }
  return sorted_items;
}

Value sort_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  return runtime.heap().list(
      sorted(runtime, runtime.iterate(input), bound.set(2), bound.boolean(1, false), bound.boolean(0, false)));
}

Value dictsort_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.is(Kind::map)) fail_type("dictsort() needs a mapping", input);
  const std::string_view by = bound.optional_text(1) != nullptr ? bound.text(1).bytes() : "key";
  if (by != "key" && by != "value") throw TemplateError("You can only sort by either \"key\" or \"value\"");
  const Value place = Value::integer(by == "key" ? 0 : 1);
  const Values& pairs = runtime.iterate(find_map_method("items")(runtime, input, {}));
  return runtime.heap().list(sorted(runtime, pairs, &place, bound.boolean(0, false), bound.boolean(2, false)));
}

// As Python's set does, of which the seen ones are members.
void require_hashable(const Value& value, Heap& heap) {
  ChargedVector<const Value*> left = {&value};
  while (!left.empty()) {
    const Value& next = *left.back();
    left.pop_back();
    heap.step();
    if (next.is(Kind::map) || (next.is(Kind::list) && next.list().form == ListForm::list))
      throw TemplateError(fmt::format("unhashable type: '{}'", type_name(next)));
    if (!next.is(Kind::list) || next.list().form != ListForm::tuple) continue;
    for (const Value& each : next.list().items) {
      heap.step();
      left.push_back(&each);
    }
  }
}

Value unique_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
  const Value seen = runtime.heap().map();
  Values items;
  for (const Value& each : runtime.iterate(input)) {
    const Value key = key_of(runtime, each, bound.set(1), bound.boolean(0, false));
    require_hashable(key, runtime.heap());
    if (seen.map().find(key, runtime.heap()) != nullptr) continue;
    runtime.heap().set(seen.map(), key, Value());
    items.push_back(each);
  }
  return generator(runtime, std::move(items));
}

template <bool is_max>
Value extreme_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound(is_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Values& items = runtime.iterate(input);
  if (items.empty()) return runtime.heap().undefined("No aggregated item, sequence was empty.");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& each : items) {
    const Value key = key_of(runtime, each, bound.set(1), bound.boolean(0, false));
    if (best != nullptr && !(is_max ? is_less(best_key, key, runtime.heap()) : is_less(key, best_key, runtime.heap())))
      continue;
    best = &each;
    best_key = key;
  }
  return *best;
}

Value sum_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  Value sum = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  for (const Value& each : runtime.iterate(input)) {
    runtime.heap().step();
    sum = runtime.arithmetic(Operator::add, sum, bound.set(0) != nullptr ? runtime.path(each, *bound.set(0)) : each);
  }
  return sum;
}

Value batch_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("batch", arguments, {"linecount", "fill_with"});
  const std::int64_t size = bound.integer(0, 0);
  if (size < 1 || size > kMaxRange)
    throw TemplateError(fmt::format("batch(): linecount must be from 1 to {}", kMaxRange));
  Values batches, row;
  for (const Value& each : runtime.iterate(input)) {
    runtime.heap().step();
    row.push_back(each);
    if (static_cast<std::int64_t>(row.size()) == size) batches.push_back(runtime.heap().list(std::exchange(row, {})));
  }
  if (!row.empty()) {
    if (bound.set(1) != nullptr) {
      for (; static_cast<std::int64_t>(row.size()) < size; row.push_back(*bound.set(1))) runtime.heap().step();
    }
    batches.push_back(runtime.heap().list(std::move(row)));
  }
  return generator(runtime, std::move(batches));
}

// So many lists of about the same length, the longer ones first.
Value slice_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("slice", arguments, {"slices", "fill_with"});
  const std::int64_t count = bound.integer(0, 0);
  if (count < 1 || count > kMaxRange)
    throw TemplateError(fmt::format("slice(): slices must be from 1 to {}", kMaxRange));
  const Values& items = runtime.iterate(input);
  const auto num_slices = static_cast<std::size_t>(count);
  const std::size_t length = items.size() / num_slices, num_longer = items.size() % num_slices;
  const bool fills = bound.set(1) != nullptr;
  Values slices;
  auto begin = items.begin();
  for (std::size_t i = 0; i < num_slices; ++i) {
    runtime.heap().step();
    const auto end = begin + static_cast<std::ptrdiff_t>(length + (i < num_longer ? 1 : 0));
    Values slice;
    for (auto each = begin; each != end; ++each) {
      runtime.heap().step();
      slice.push_back(*each);
    }
    if (fills && i >= num_longer) slice.push_back(*bound.set(1));
    slices.push_back(runtime.heap().list(std::move(slice)));
    begin = end;
  }
  return generator(runtime, std::move(slices));
}

Value groupby_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const bool case_sensitive = bound.boolean(2, false);
  const Value& attribute = bound.required(0);
  Values groups, members;
  std::optional<Value> key;
  const auto finish = [&] {
    if (!key) return;
    const Value name = runtime.path(members.front(), attribute);
    groups.push_back(runtime.heap().list({name, runtime.heap().list(std::exchange(members, {}))}, ListForm::tuple));
  };
  for (const Value& each : sorted(runtime, runtime.iterate(input), &attribute, case_sensitive, false)) {
    const Value next = key_of(runtime, each, &attribute, case_sensitive);
    if (!key || !equals(*key, next, runtime.heap())) {
      finish();
      key = next;
    }
    members.push_back(each);
  }
  finish();
  return runtime.heap().list(std::move(groups));
}

// One more for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(std::uint32_t& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  std::uint32_t& depth_;
};

const Value* named_argument(const CallArguments& arguments, std::string_view name) {
  for (const auto& [each, value] : arguments.named)
    if (each == name) return &value;
  return nullptr;
}

// map, select and reject give nothing for what is not true, as none or 0, and do not look at their arguments then.
Value map_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  Values items;
  if (!is_true(input)) return generator(runtime, std::move(items));
  if (const Value* const attribute = named_argument(arguments, "attribute");
      attribute && arguments.positional.empty()) {
    const BoundArguments bound("map", arguments, {"attribute", "default"});
    for (const Value& each : runtime.iterate(input)) {
      runtime.heap().step();
      items.push_back(runtime.path(each, *attribute, bound.set(1)));
    }
    return generator(runtime, std::move(items));
  }
  if (arguments.positional.empty()) throw TemplateError("map requires a filter argument");
  const Value& name = arguments.positional[0];
  if (!name.is(Kind::text)) fail_type("map(): the name of a filter must be str", name);
  const CallArguments rest{Values(arguments.positional.begin() + 1, arguments.positional.end()), arguments.named};
  for (const Value& each : runtime.iterate(input)) {
    runtime.heap().step();
    items.push_back(runtime.filter(name.text().bytes(), each, rest));
  }
  return generator(runtime, std::move(items));
}

template <bool keeps, bool by_attribute>
Value select_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  constexpr std::size_t kTest = by_attribute ? 1 : 0;
  if (!is_true(input)) return generator(runtime, {});
  const auto& given = arguments.positional;
  if (by_attribute && given.empty()) throw TemplateError("Missing parameter for attribute name");
  CallArguments rest;
  if (given.size() > kTest) {
    if (!given[kTest].is(Kind::text)) fail_type("the name of a test must be str", given[kTest]);
    rest = {Values(given.begin() + kTest + 1, given.end()), arguments.named};
  }
  Values items;
  for (const Value& each : runtime.iterate(input)) {
    runtime.heap().step();
    const Value tested = by_attribute ? runtime.path(each, given[0]) : each;
    const bool holds = given.size() > kTest ? runtime.test(given[kTest].text().bytes(), tested, rest) : is_true(tested);
    if (holds == keeps) items.push_back(each);
  }
  return generator(runtime, std::move(items));
}

Value attr_filter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  const BoundArguments bound("attr", arguments, {"name"});
  return runtime.attribute(input, bound.text(0).bytes());
}

constexpr std::array<std::pair<std::string_view, Function>, 23> kSequenceFilters = {{
    {"length", length_filter},
    {"count", length_filter},
    {"list", list_filter},
    {"first", first_filter},
    {"last", last_filter},
    {"reverse", reverse_filter},
    {"join", join_filter},
    {"items", items_filter},
    {"sort", sort_filter},
    {"dictsort", dictsort_filter},
    {"unique", unique_filter},
    {"min", extreme_filter<false>},
    {"max", extreme_filter<true>},
    {"sum", sum_filter},
    {"batch", batch_filter},
    {"slice", slice_filter},
    {"groupby", groupby_filter},
    {"map", map_filter},
    {"select", select_filter<true, false>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<false, true>},
    {"attr", attr_filter},
}};

constexpr std::array<std::string_view, 8> kKnownFilters = {"random", "filesizeformat", "pprint",   "striptags",
                                                           "urlize", "urlencode",      "wordwrap", "xmlattr"};

}  // namespace

Function find_sequence_filter(std::string_view name) {
  const auto* const found = std::find_if(kSequenceFilters.begin(), kSequenceFilters.end(),
                                         [&](const auto& each) { return each.first == name; });
  return found == kSequenceFilters.end() ? nullptr : found->second;
}

Value Runtime::filter(std::string_view name, const Value& input, const CallArguments& arguments) {
  Function function = find_text_filter(name);
  if (function == nullptr) function = find_sequence_filter(name);
  if (function != nullptr) {
    if (filter_depth_ == kMaxFilterDepth)
      throw TemplateError(fmt::format("filters by name are nested deeper than {} levels", kMaxFilterDepth));
    const DepthGuard guard(filter_depth_);
    return function(*this, input, arguments);
  }
  if (std::find(kKnownFilters.begin(), kKnownFilters.end(), name) != kKnownFilters.end())
    throw TemplateError(fmt::format("the filter '{}' is not supported in chat templates", name));
  throw TemplateError(fmt::format("No filter named '{}'.", shown(name)));
}

}  // namespace troupe::engine::chat
