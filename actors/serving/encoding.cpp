#include "actors/serving/encoding.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <variant>

namespace troupe::actors {
namespace {

template <class Container>
std::uint64_t bytes_of(const std::vector<Container>& all) {
  std::uint64_t bytes = 0;
  for (const Container& each : all) bytes += each.size() * sizeof(each[0]);
  return bytes;
}

// The first and last bytes of a text or of ids.
template <class Container>
std::size_t hash_ends(const Container& input) {
  constexpr std::size_t kMostBytes = 4096;  // of either end
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size() * sizeof(input[0]));
  const std::size_t count = std::min(bytes.size(), kMostBytes);
  const std::hash<std::string_view> hash;
  return hash(bytes.substr(0, count)) * 31 + hash(bytes.substr(bytes.size() - count));
}

}  // namespace

std::span<const std::string> texts_of(const Request& request) {
  if (request.embed) {
    const auto* const texts = std::get_if<std::vector<std::string>>(&request.embed->texts);
    return texts ? std::span<const std::string>(*texts) : std::span<const std::string>();
  }
  const auto* const text = std::get_if<std::string>(&request.prompt);
  return text ? std::span<const std::string>(text, 1) : std::span<const std::string>();
}

std::uint64_t input_bytes(const Request& request) {
  if (request.embed) return std::visit([](const auto& all) { return bytes_of(all); }, request.embed->texts);
  return std::visit([](const auto& prompt) { return std::uint64_t{prompt.size() * sizeof(prompt[0])}; },
                    request.prompt);
}

std::uint64_t content_of(const Request& request) {
  std::uint64_t hash = input_bytes(request) * 31 + request.num_choices;
  if (!request.embed) {
    hash = hash * 31 + std::visit([](const auto& prompt) { return hash_ends(prompt); }, request.prompt);
  } else if (request.embed->count() > 0) {
    hash = hash * 31 + std::visit([](const auto& all) { return hash_ends(all.front()) * 31 + hash_ends(all.back()); },
                                  request.embed->texts);
  }
  return std::max<std::uint64_t>(hash, 1);
}

Encoding::Encoding(std::shared_ptr<const Request> request, std::shared_ptr<const engine::Tokenizer> tokenizer,
                   std::size_t max_tokens)
    : request_(std::move(request)), tokenizer_(std::move(tokenizer)), max_tokens_(max_tokens) {}

bool Encoding::complete() const {
  const bool too_long = request_->embed && !ids_.empty() && ids_.back().size() > max_tokens_;
  return too_long || ids_.size() == texts_of(*request_).size();
}

std::uint64_t Encoding::next_part() const {
  if (complete()) return 0;
  std::uint64_t bytes = 1;
  for (const std::string& text : texts_of(*request_).subspan(ids_.size())) {
    bytes += text.size();
    if (bytes >= kBytesPerPart) break;
  }
  return bytes;
}

void Encoding::encode_some(const std::atomic<bool>* interrupt) {
  const engine::EncodeOptions options{
      .add_special = request_->add_special, .parse_special = request_->parse_special, .interrupt = interrupt};
  for (std::uint64_t bytes = 0; !complete() && bytes < kBytesPerPart;) {
    const std::string& text = texts_of(*request_)[ids_.size()];
    bytes += text.size() + 1;
    ids_.push_back(tokenizer_->encode(text, options));
    ids_.back().shrink_to_fit();
  }
}

}  // namespace troupe::actors
