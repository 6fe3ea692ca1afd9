#include "actors/requests/call_form.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "engine/chat/values/json.h"

namespace troupe::actors {
namespace {

// Without names, which are the client's.
void warn_of_loose_tools(const engine::constraints::CallRule& made, std::size_t num_tools) {
  if (made.loose.empty()) return;
  std::set<std::string> keywords;
  for (const auto& each : made.loose) keywords.insert(each.why.keyword.empty() ? "too large" : each.why.keyword);
  spdlog::warn(
      "calls of {} of a request's {} tools have any JSON object as arguments, as their schemas cannot be "
      "enforced ({}); `troupe schema check` says why",
      made.loose.size(), num_tools, fmt::join(keywords, ", "));
}

}  // namespace

Status CallForm::compile(const std::string& tools, std::shared_ptr<const engine::chat::ToolSet> set,
                         const engine::chat::ToolFormat& format,
                         std::shared_ptr<const engine::constraints::TokenTrie> trie,
                         std::shared_ptr<const engine::Tokenizer> tokenizer) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_compiled_) return Ok{};
  }
  const auto list = engine::chat::parse_json(tools);
  if (!list) return list.error();
  const std::size_t num_tools = set->size();
  auto made =
      engine::constraints::make_call_rule(*list, std::move(set), format, wish_, std::move(trie), std::move(tokenizer));
  if (!made && !wish_.strict.empty()) return made.error();
  if (made) warn_of_loose_tools(*made, num_tools);
  const std::scoped_lock lock(mutex_);
  if (std::exchange(is_compiled_, true) || !made) return Ok{};
  rule_ = std::move(made->rule);
  least_tokens_ = made->least_tokens;
  return Ok{};
}

std::shared_ptr<const engine::AnswerRule> CallForm::rule() const {
  const std::scoped_lock lock(mutex_);
  return rule_;
}

std::size_t CallForm::least_tokens() const {
  const std::scoped_lock lock(mutex_);
  return least_tokens_;
}

}  // namespace troupe::actors
