#include "engine/chat/values/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {
namespace {

// Builds the value as the parser finds its parts; nothing recurses.
class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(std::int64_t value) override { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) override {
    constexpr auto kMax = static_cast<std::uint64_t>(INT64_MAX);
    return add(value <= kMax ? Json(static_cast<std::int64_t>(value)) : Json(LargeInteger{std::to_string(value)}));
  }
  // Also integers beyond 64 bits.
  bool number_float(double value, const std::string& written) override {
    const bool is_whole = written.find_first_not_of("-0123456789") == std::string::npos;
    return add(is_whole ? Json(LargeInteger{written}) : Json(value));
  }
  bool string(std::string& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json(Json::Object())); }
  bool start_array(std::size_t) override { return open(Json(Json::List())); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_ = fmt::format("byte {} is not what JSON has there", position);
    return false;
  }

  Json take() { return std::move(done_); }
  const std::string& error() const { return error_; }

 private:
  struct Open {
    Json value;
    std::string name;                                     // of the member that comes
    std::unordered_map<std::string, std::size_t> places;  // of an object's members
  };

  bool open(Json value) {
    if (open_.size() == kMaxJsonDepth) {
      error_ = fmt::format("it is nested deeper than {} levels", kMaxJsonDepth);
      return false;
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (open_.empty()) {
      done_ = std::move(value);
      return true;
    }
    Open& into = open_.back();
    if (auto* const list = std::get_if<Json::List>(&into.value.value)) {
      list->push_back(std::move(value));
      return true;
    }
    auto& object = std::get<Json::Object>(into.value.value);
    const auto [place, is_new] = into.places.try_emplace(into.name, object.size());
    if (is_new)
      object.emplace_back(into.name, std::move(value));
    else
      object[place->second].second = std::move(value);
    return true;
  }

  std::vector<Open> open_;
  Json done_;
  std::string error_;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  const Object* const members = object();
  if (members == nullptr) return nullptr;
  const auto found =
      std::find_if(members->begin(), members->end(), [&](const auto& each) { return each.first == name; });
  return found == members->end() ? nullptr : &found->second;
}

Result<Json> parse_json(std::string_view text) {
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return Error{ErrorCode::invalid_argument, fmt::format("this is no JSON: {}", builder.error())};
  return builder.take();
}

}  // namespace troupe::engine::chat
