#include "actors/requests/request_check.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <memory>

namespace troupe::actors {
namespace {

using scheduler::Outcome;

const ServingLimits kLimits{.model = "tales",
                            .vocab_size = 100,
                            .has_vocabulary = true,
                            .capacity = {.context = 64, .groups = {{.num_blocks = 1}}}};

Request text_request(std::string text) {
  Request request;
  request.prompt = std::move(text);
  return request;
}

TEST_CASE("a plain request passes every check") {
  const Request request = text_request("Once");
  CHECK_FALSE(check_shape(request));
  CHECK_FALSE(check_for_model(request, kLimits));
  CHECK_FALSE(check_length(request, 31, kLimits));
}

TEST_CASE("shape: each bound is refused with its field and number") {
  Request request = text_request(std::string(kMaxPromptBytes + 1, 'x'));
  auto end = check_shape(request);
  REQUIRE(end);
  CHECK(end->outcome == Outcome::too_long);
  CHECK(end->field == "text");
  CHECK(end->limit == std::optional<std::uint64_t>(kMaxPromptBytes));

  request = text_request("x");
  request.prompt = std::vector<TokenId>(kMaxPromptBytes / sizeof(TokenId) + 1, 1);
  end = check_shape(request);
  REQUIRE(end);
  CHECK(end->outcome == Outcome::too_long);
  CHECK(end->field == "token_ids");

  request = text_request("x");
  request.proposal = std::vector<TokenId>(kMaxPromptBytes / sizeof(TokenId) + 1, 1);
  CHECK(check_shape(request)->outcome == Outcome::too_long);
  CHECK(check_shape(request)->field == "proposal");

  request = text_request("x");
  request.stop_strings = {""};
  CHECK(check_shape(request)->field == "stop");
  request.stop_strings = {std::string(kMaxStopStringBytes + 1, 's')};
  CHECK(check_shape(request)->limit == std::optional<std::uint64_t>(kMaxStopStringBytes));

  request = text_request("x");
  request.begins_with = std::string(kMaxBeginningBytes, 'b');
  CHECK_FALSE(check_shape(request));
  request.begins_with += 'b';
  CHECK(check_shape(request)->field == "begins_with");
  CHECK(check_shape(request)->limit == std::optional<std::uint64_t>(kMaxBeginningBytes));
  request = text_request("x");
  request.shown_ids = std::vector<TokenId>(kMaxShownIds + 1, 1);
  CHECK(check_shape(request)->field == "shown_ids");

  request = text_request("x");
  request.cache_scope = std::string(kMaxScopeBytes + 1, 's');
  CHECK(check_shape(request)->field == "cache_scope");

  request = text_request("x");
  request.deadline = std::chrono::milliseconds(0);
  CHECK(check_shape(request)->field == "deadline_ms");
}

TEST_CASE("model: the name must be empty or the one served") {
  Request request = text_request("x");
  request.model = "tales";
  CHECK_FALSE(check_for_model(request, kLimits));
  request.model = "gpt-9";
  const auto end = check_for_model(request, kLimits);
  REQUIRE(end);
  CHECK(end->outcome == Outcome::unknown_model);
  CHECK(end->message.find("\"tales\"") != std::string::npos);
  request.model = "\n\x1b[2J" + std::string(1u << 20, 'x');
  const std::string message = check_for_model(request, kLimits)->message;
  CHECK(message.find(R"("\n\x1b[2Jxxx)") != std::string::npos);
  CHECK(message.size() < 200);
}

TEST_CASE("model: sampling parameters and ids must be in range") {
  Request request = text_request("x");
  request.sampling.top_p = 1.5f;
  CHECK(check_for_model(request, kLimits)->outcome == Outcome::invalid_argument);

  request = text_request("x");
  request.prompt = std::vector<TokenId>{1, 100};
  auto end = check_for_model(request, kLimits);
  REQUIRE(end);
  CHECK(end->field == "token_ids");
  CHECK(end->message.find("token_ids[1] is 100") != std::string::npos);
  request.prompt = std::vector<TokenId>{-1};
  CHECK(check_for_model(request, kLimits)->field == "token_ids");
}

TEST_CASE("model: without a vocabulary only ids are served, and no stop strings") {
  ServingLimits limits = kLimits;
  limits.has_vocabulary = false;
  CHECK(check_for_model(text_request("x"), limits)->outcome == Outcome::unsupported);
  Request request;
  request.prompt = std::vector<TokenId>{1, 2};
  CHECK_FALSE(check_for_model(request, limits));
  request.stop_strings = {"x"};
  CHECK(check_for_model(request, limits)->field == "stop");
}

TEST_CASE("length: empty, beyond the context and beyond the cache are told apart") {
  const Request request = text_request("x");
  CHECK(check_length(request, 0, kLimits)->outcome == Outcome::invalid_argument);
  CHECK(check_length(request, 64, kLimits)->outcome == Outcome::too_long);
  CHECK(check_length(request, 64, kLimits)->limit == std::optional<std::uint64_t>(64));
  CHECK(check_length(request, 40, kLimits)->outcome == Outcome::never_fits);
}

TEST_CASE("length: a tenant's max_context bounds prompts, and each text of an Embed") {
  Request request = text_request("x");
  request.tenant.policy = std::make_shared<const scheduler::TenantPolicy>(
      scheduler::TenantPolicy{.name = {}, .limits = {.max_context = 20}});
  CHECK_FALSE(check_length(request, 19, kLimits));
  const auto end = check_length(request, 20, kLimits);
  REQUIRE(end);
  CHECK(end->outcome == Outcome::too_long);
  CHECK(end->field == "max-context");
  CHECK(end->limit == std::optional<std::uint64_t>(20));
  CHECK_FALSE(end->retry_after);

  ServingLimits limits = kLimits;
  limits.max_embed_tokens = 30;
  request.embed.emplace().texts = std::vector<std::string>{"a", "b"};
  const auto with = [](std::size_t tokens) { return EmbedIds{{1}, std::vector<TokenId>(tokens, 1)}; };
  CHECK_FALSE(check_lengths(request, with(20), limits));
  CHECK(check_lengths(request, with(21), limits)->field == "max-context");
  CHECK(check_lengths(request, with(31), limits)->field == "texts");
}

TEST_CASE(
    "refused: a retry is after what the refusal says, a second if it says nothing, and never if none can succeed") {
  const auto retry_after = [](std::optional<double> seconds, Outcome outcome = Outcome::quota) {
    return refused({.outcome = outcome, .message = {}, .field = {}, .limit = {}, .retry_after = seconds}).retry_after;
  };
  using std::chrono::milliseconds;
  CHECK(retry_after(std::nullopt) == milliseconds(1000));
  CHECK(retry_after(2.5) == milliseconds(2500));
  CHECK(retry_after(2.50001) == milliseconds(2501));
  CHECK(retry_after(1e-9) == milliseconds(1));
  CHECK(retry_after(std::numeric_limits<double>::infinity()) == std::nullopt);
  CHECK(retry_after(std::nullopt, Outcome::too_long) == std::nullopt);
}

}  // namespace
}  // namespace troupe::actors
