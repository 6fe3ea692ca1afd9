#include "cli/store/transfer_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/store/limited_json.h"
#include "cli/store/record.h"

namespace troupe::cli {

std::string state_text(const TransferState& state) {
  nlohmann::ordered_json done = nlohmann::ordered_json::array();
  for (const ByteRange& range : state.done.ranges()) done.push_back({range.begin, range.end});
  const nlohmann::ordered_json object{{"version", 1},       {"url", state.url},   {"sha256", state.sha256},
                                      {"etag", state.etag}, {"size", state.size}, {"done", std::move(done)}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<TransferState> parse_state(std::string_view text) {
  const auto wrong = [](const char* why) {
    return Error{ErrorCode::io, fmt::format("no state of a transfer: {}", why)};
  };
  if (text.size() > kMaxStateBytes) return wrong("it is too long");
  const auto object = parse_limited<nlohmann::ordered_json>(text);
  if (!object.is_object()) return wrong("it is no JSON object");
  const auto text_of = [&](const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number = [](const nlohmann::ordered_json& value) {
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  };
  const auto size = object.find("size"), version = object.find("version"), done = object.find("done");
  if (version == object.end() || number(*version) != 1) return wrong("it is of another version");
  TransferState state{
      .url = text_of("url"), .sha256 = text_of("sha256"), .etag = text_of("etag"), .size = 0, .done = {}};
  if (size != object.end()) state.size = number(*size);
  if (state.size == 0 || state.size > kMaxModelFileBytes) return wrong("it has no size");
  if (!state.sha256.empty() && !is_sha256(state.sha256)) return wrong("its hash is none");
  if (done == object.end() || !done->is_array() || done->size() > kMaxStateRanges) return wrong("it has no ranges");
  for (const auto& each : *done) {
    if (!each.is_array() || each.size() != 2 || !each[0].is_number_unsigned() || !each[1].is_number_unsigned())
      return wrong("a range is none");
    const ByteRange range{each[0].get<std::uint64_t>(), each[1].get<std::uint64_t>()};
    if (range.begin >= range.end || range.end > state.size) return wrong("a range lies beyond the file");
    state.done.add(range);
  }
  return state;
}

}  // namespace troupe::cli
