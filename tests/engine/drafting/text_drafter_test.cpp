// A draft model of another vocabulary drafts what it would say to the same text.
#include "engine/drafting/text_drafter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "tests/engine/drafting/other_vocabulary.h"
#include "tests/engine/drafting/said.h"
#include "tests/engine/gguf_copy.h"
#include "tests/support/shared_data.h"

namespace troupe::engine {
using namespace test;

namespace {

// The first tokens of another file's vocabulary, as many as the model has ids.
std::string with_vocabulary_of(const ModelFile& vocabulary, const ModelFile& model) {
  const auto embedding =
      std::ranges::find(model.tensors(), std::string("token_embd.weight"), [](const auto& t) { return t.name; });
  GgufWriter w;
  for (const auto& [key, value] : model.metadata())
    if (!key.starts_with("tokenizer.")) std::visit(MetadataCopy(w, key), value);
  for (const auto& entry : vocabulary.metadata()) {
    if (!entry.first.starts_with("tokenizer.")) continue;
    std::visit(
        [&](auto copy) {
          using Value = decltype(copy);
          if constexpr (requires { copy.resize(1); } && !std::is_same_v<Value, std::string>)
            copy.resize(embedding->shape[1]);
          MetadataCopy(w, entry.first)(copy);
        },
        entry.second);
  }
  for (const TensorInfo& tensor : model.tensors())
    w.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, to_string(tensor.bytes));
  return w.bytes();
}

std::shared_ptr<LoadedModel> draft_of_other_vocabulary(std::uint32_t num_blocks, std::size_t longest = 8) {
  const auto file = open_gguf(std::string(TROUPE_MODELS) + "/tales-draft-q8_0.gguf");
  if (!file) FAIL(file.error().message);
  const TemporaryFile changed(with_other_vocabulary(**file, longest));
  return load(changed.path(), num_blocks, "");
}

// The part of next tokens of the model's own answers to stories, without temperature, that the draft model proposes.
double share_of_right_proposals(const LoadedModel& draft, const LoadedModel& model, Team& team) {
  const std::vector<Tokens> prompts = story_beginnings(model);
  std::size_t num_right = 0, num_tokens = 0;
  for (std::size_t i = 0; i < prompts.size(); i += 3) {  // of 28: enough, and sanitizers are slow
    const Tokens& prompt = prompts[i];
    const Tokens all = said(model, team, prompt, 100, params(0));
    const auto drafter = make_proposer(draft, model, team);
    for (std::size_t known = prompt.size() + 1, told = 0; known < all.size(); told = known++) {
      DraftReply reply;
      drafter->propose({{.request = 1,
                         .first = static_cast<std::uint32_t>(told),
                         .tokens = part(all, told, known),
                         .num_draft = 3,
                         .sampling = params(0)}},
                       reply);
      REQUIRE_FALSE(reply.answers[0].is_lost);
      const Tokens& proposed = reply.answers[0].tokens;
      REQUIRE(proposed.size() <= 3);
      num_right += !proposed.empty() && proposed[0] == all[known] ? 1 : 0;
      ++num_tokens;
    }
  }
  REQUIRE(num_tokens > 500);
  return static_cast<double>(num_right) / static_cast<double>(num_tokens);
}

}  // namespace

TEST_CASE("a draft model of another vocabulary is nearly as often right by text as with its own ids") {
  Team team(2);
  const auto model = load("tales-5m-tq2_0.gguf", 32), same = load("tales-draft-q8_0.gguf", 32);
  const double by_ids = share_of_right_proposals(*same, *model, team);
  // With pieces as before, and with words in pieces that the draft model has hardly ever seen.
  for (const auto& [longest, least] : {std::pair{std::size_t{99}, 0.95}, std::pair{std::size_t{8}, 0.5}}) {
    const auto other = draft_of_other_vocabulary(32, longest);
    const auto how = compare_vocabularies(*other, *model);
    REQUIRE(how);
    REQUIRE(*how == Drafting::by_text);
    const double by_text = share_of_right_proposals(*other, *model, team);
    INFO(by_ids << " by ids, " << by_text << " by text with pieces of at most " << longest << " bytes");
    CHECK(by_text > least * by_ids);
  }
}

TEST_CASE("a model of 260,000 parameters and 512 tokens drafts for one of 2,048") {
  const auto path = shared_file("thirdparty/stories260k/stories260K.gguf");
  if (!path) return;
  Team team(2);
  const auto model = load("tales-5m-tq2_0.gguf", 32), draft = load(*path, 64, "");
  const double share = share_of_right_proposals(*draft, *model, team);
  INFO(share);
  CHECK(share > 0.15);
}

TEST_CASE("a draft by text depends on the text alone, not on how it came") {
  Team team(2);
  const auto model = load("tales-5m-tq2_0.gguf", 32);
  const auto draft = draft_of_other_vocabulary(64);
  TextDrafter drafter(*draft, *model, team);
  std::mt19937 random(3);
  std::size_t num_same = 0, num_asked = 0;
  for (const Tokens& prompt : story_beginnings(*model)) {
    const Tokens all = said(*model, team, prompt, 100, params(0.8f));
    for (std::size_t known = prompt.size() + 1, told = 0; known < all.size(); told = known, known += 1 + random() % 6) {
      const auto propose = [&](std::uint64_t request, std::size_t first) {
        DraftReply reply;
        drafter.propose({{.request = request,
                          .first = static_cast<std::uint32_t>(first),
                          .tokens = part(all, first, known),
                          .num_draft = 4,
                          .sampling = params(0.8f)}},
                        reply);
        REQUIRE_FALSE(reply.answers[0].is_lost);
        return reply.answers[0].tokens;
      };
      num_same += propose(1, told) == propose(2, 0) ? 1 : 0;
      ++num_asked;
      drafter.close(2);
    }
    drafter.close(1);
  }
  INFO(num_same << " of " << num_asked);
  CHECK(20 * num_same >= 19 * num_asked);
}

TEST_CASE(
    "a text that is forgotten for want of blocks is lost, and told again; one longer than the context has no drafts") {
  Team team(1);
  const auto model = load("tales-5m-tq2_0.gguf", 8);
  const auto draft = draft_of_other_vocabulary(8);
  TextDrafter drafter(*draft, *model, team);
  const Tokens text = model->tokenizer()->encode("The cat sat on the mat and the dog sat by the door.", {});
  DraftReply reply;
  const auto ask = [&](std::uint64_t request, std::uint32_t first, const Tokens& tokens) {
    drafter.propose({{.request = request, .first = first, .tokens = tokens, .num_draft = 2, .sampling = params(0)}},
                    reply);
    return reply.answers[0];
  };
  const auto length = static_cast<std::uint32_t>(text.size());
  CHECK(ask(1, 5, text).is_lost);  // of which it was never told the first five
  REQUIRE_FALSE(ask(1, 0, text).is_lost);
  std::uint32_t lost = 0;
  for (std::uint64_t request = 2; request < 12; ++request) REQUIRE_FALSE(ask(request, 0, text).is_lost);
  lost += ask(1, length, {text.back()}).is_lost ? 1 : 0;
  CHECK(lost == 1);
  CHECK_FALSE(ask(1, 0, text).is_lost);
  CHECK(ask(1, length + 1, {text.back()}).is_lost);  // one is missing between
  for (const std::uint32_t contexts : {1, 3}) {
    Tokens long_text;
    while (long_text.size() < contexts * draft->info().context)
      long_text.insert(long_text.end(), text.begin(), text.end());
    const DraftAnswer none = ask(10, 0, long_text);
    CHECK_FALSE(none.is_lost);
    CHECK(none.tokens.empty());
    CHECK_FALSE(ask(10, static_cast<std::uint32_t>(long_text.size()), {text.back()}).is_lost);
  }
}

TEST_CASE("a model that cannot draft for another one is refused with the reason") {
  const auto target = load("tales-5m-tq2_0.gguf", 8);
  const auto refusal = [&](const LoadedModel& draft, const LoadedModel& of) {
    const auto how = compare_vocabularies(draft, of);
    REQUIRE_FALSE(how);
    CHECK(how.error().code == ErrorCode::bad_model);
    return how.error().message;
  };
  const auto golden = load("llama.gguf", 8, TROUPE_TEST_DATA "/golden");
  CHECK_THAT(refusal(*golden, *target), Catch::Contains("has no vocabulary"));
  for (const char* name : {"mamba", "gemma3"}) {
    const auto file = open_gguf(std::string(TROUPE_TEST_DATA "/golden/") + name + ".gguf");
    const auto tales = open_gguf(std::string(TROUPE_MODELS) + "/tales-draft-q8_0.gguf");
    REQUIRE((file && tales));
    const TemporaryFile changed(with_vocabulary_of(**tales, **file));
    CHECK_THAT(refusal(*load(changed.path(), 16, ""), *target), Catch::Contains("attention to the whole context"));
  }
}

}  // namespace troupe::engine
