// Named conversations through a whole gateway: continued, restarted, forked, deleted, refused.
#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "actors/saboteur.h"
#include "actors/sessions/session_store.h"
#include "tests/actors/gateway_fixture.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/metadata_file.h"
#include "tests/engine/saved_sequence.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

using namespace test;
using Catch::Matchers::Contains;
using scheduler::Outcome;
using troupe::test::TempFolder;
namespace fs = std::filesystem;

constexpr const char* kAttention = "llama";
constexpr const char* kModels[] = {"llama",     "gemma2", "gemma3", "mamba", "rwkv7",
                                   "falcon-h1", "deci",   "lfm2",   "qwen35"};

GatewayOptions options_for(const std::string& model, const std::string& directory = {}) {
  GatewayOptions options;
  options.model().path = std::string(TROUPE_TEST_DATA) + "/golden/" + model + ".gguf";
  options.num_threads = 1;
  options.max_step_tokens = 48;  // several steps for a prompt, and for copies
  options.model().load.num_blocks = 64;
  options.model().load.num_snapshots = 16;
  options.model().load.snapshot_every = 64;
  options.model().load.context = 512;
  options.max_sequences = 4;
  options.sessions_directory = directory;
  return options;
}

std::vector<TokenId> some_ids(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids;
  while (ids.size() < count) ids.push_back(3 + static_cast<TokenId>(random() % 40));
  return ids;
}

Request turn(const std::string& session, std::vector<TokenId> ids, std::uint32_t max_tokens) {
  Request request = seeded({}, max_tokens, 17);
  request.prompt = std::move(ids);
  request.session = session;
  request.sampling.ignore_eos = true;
  return request;
}

SessionAnswer ask(Gateway& gateway, SessionQuestion question) {
  Answer<SessionAnswer> answer;
  gateway.session(std::move(question), answer.callback());
  return answer.wait();
}
SessionAnswer ask(Gateway& gateway, SessionQuestion::Kind kind, const std::string& name, const std::string& to = {},
                  const scheduler::Tenant& tenant = kOwner) {
  return ask(gateway, {.kind = kind, .tenant = tenant, .name = name, .to = to});
}
using Kind = SessionQuestion::Kind;

SessionInfo info_of(const SessionAnswer& answer) {
  if (const auto* refusal = std::get_if<scheduler::Refusal>(&answer)) FAIL(refusal->message);
  return std::get<std::vector<SessionInfo>>(answer).at(0);
}
std::vector<std::string> names_in(Gateway& gateway, const scheduler::Tenant& tenant = kOwner) {
  std::vector<std::string> names;
  const SessionAnswer all = ask(gateway, Kind::list, {}, {}, tenant);
  for (const SessionInfo& info : std::get<std::vector<SessionInfo>>(all)) names.push_back(info.name);
  return names;
}

void append(std::vector<TokenId>& to, const std::vector<TokenId>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// What a gateway without sessions answers to all tokens at once.
std::vector<TokenId> uninterrupted(const std::string& model, const std::vector<TokenId>& all,
                                   std::uint32_t max_tokens) {
  const auto gateway = start(options_for(model));
  return run(*gateway, turn({}, all, max_tokens)).ids;
}

struct Turn {
  std::size_t num_ids;
  std::uint32_t max_tokens;
};
constexpr Turn kTurns[] = {{70, 40}, {41, 37}, {5, 50}};

// Where the files of the only tenant lie.
fs::path files_in(const TempFolder& folder) { return fs::path(folder.path("sessions")) / "1000"; }

// Another file takes the name of the model that is served.
void replace_model(Gateway& gateway, const GatewayOptions& options, const std::string& path,
                   const std::string& chat_template = {}) {
  actors::ModelRequest request;
  request.keys.path = path;
  request.keys.name = gateway.model_names().front();
  request.keys.kv_blocks = options.models.front().load.num_blocks;
  request.keys.ctx_size = options.models.front().load.context;
  request.keys.replace = "beside";
  request.keys.chat_template = chat_template.empty() ? "" : "mine";
  request.chat_template_source = chat_template;
  Answer<ModelChange> change;
  gateway.load_models({{request, change.callback()}});
  REQUIRE(std::holds_alternative<ModelHealth>(change.wait()));
}

// --- continuing ---

TEST_CASE("a conversation answers as one request with all its tokens, in every kind of model") {
  for (const char* model : kModels) {
    INFO(model);
    const TempFolder folder;
    const auto gateway = start(options_for(model, folder.path("sessions")));
    std::vector<TokenId> all;
    unsigned seed = 1;
    for (const auto& [num_ids, max_tokens] : kTurns) {
      const auto ids = some_ids(num_ids, seed++);
      append(all, ids);
      const Answered answered = run(*gateway, turn("talk", ids, max_tokens));
      REQUIRE(answered.end.outcome == Outcome::length);
      CHECK(answered.end.message.empty());
      CHECK(answered.end.usage.prompt_tokens == all.size());
      CHECK(answered.ids == uninterrupted(model, all, max_tokens));
      append(all, answered.ids);
    }
    const SessionInfo info = info_of(ask(*gateway, Kind::inspect, "talk"));
    CHECK(info.num_tokens == all.size());
    CHECK(info.num_answers == 3);
  }
}

TEST_CASE("a conversation goes on after a restart of the server from its files, without computing a block again") {
  for (const char* model : kModels) {
    INFO(model);
    const TempFolder folder;
    std::vector<TokenId> all;
    unsigned seed = 1;
    for (const auto& [num_ids, max_tokens] : kTurns) {
      const auto gateway = start(options_for(model, folder.path("sessions")));
      const auto ids = some_ids(num_ids, seed++);
      const std::size_t known = all.size();
      append(all, ids);
      const Answered answered = run(*gateway, turn("talk", ids, max_tokens));
      REQUIRE(answered.end.outcome == Outcome::length);
      CHECK(answered.ids == uninterrupted(model, all, max_tokens));
      if (known > 0)
        CHECK(answered.end.usage.cached_tokens == known - 1);  // the last answer's last token was drawn only
      const std::size_t num_cached = known > 0 ? known - 1 : 0;
      CHECK(answered.end.usage.computed_tokens == all.size() - num_cached + max_tokens - 1);
      append(all, answered.ids);
      const SessionInfo saved = info_of(ask(*gateway, Kind::save, "talk"));
      CHECK(saved.num_computed == all.size() - 1);
      CHECK(saved.num_tokens == all.size());
    }
  }
}

TEST_CASE("what was read from a file is published: a request with the same prefix is served from it") {
  for (const char* model : kModels) {
    INFO(model);
    const TempFolder folder;
    std::vector<TokenId> all = some_ids(130, 5);
    {
      const auto gateway = start(options_for(model, folder.path("sessions")));
      append(all, run(*gateway, turn("talk", all, 30)).ids);
      (void)ask(*gateway, Kind::save, "talk");
    }
    const auto gateway = start(options_for(model, folder.path("sessions")));
    const auto more = some_ids(40, 6);
    append(all, more);
    const Answered second = run(*gateway, turn("talk", more, 10));
    CHECK(second.ids == uninterrupted(model, all, 10));
    append(all, second.ids);
    const Answered other = run(*gateway, turn({}, all, 20));
    CHECK(other.ids == uninterrupted(model, all, 20));
    if (std::string(model) == kAttention) CHECK(other.end.usage.cached_tokens >= 160);
  }
}

TEST_CASE("a session goes on where the cache has lost its blocks to others") {
  const TempFolder folder;
  GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  options.model().load.num_blocks = 16;
  const auto gateway = start(options);
  std::vector<TokenId> all = some_ids(100, 1);
  append(all, run(*gateway, turn("talk", all, 30)).ids);
  (void)ask(*gateway, Kind::save, "talk");
  for (unsigned seed = 10; seed < 13; ++seed) (void)run(*gateway, turn({}, some_ids(300, seed), 20));
  const SessionInfo lost = info_of(ask(*gateway, Kind::inspect, "talk"));
  REQUIRE(lost.cache_known);
  REQUIRE(lost.anchors.size() == 4);
  CHECK_FALSE(lost.anchors.back().cached);
  const auto more = some_ids(9, 2);
  append(all, more);
  const Answered answered = run(*gateway, turn("talk", more, 10));
  CHECK(answered.ids == uninterrupted(kAttention, all, 10));
  CHECK(answered.end.usage.cached_tokens == 129);
  CHECK(info_of(ask(*gateway, Kind::inspect, "talk")).anchors.at(3).cached);
}

TEST_CASE("what writing a session's file computes is charged to its tenant") {
  const TempFolder folder;
  GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  std::mutex mutex;
  double told = 0;  // of requests, and of copies for files: all but the writing
  options.on_usage = [&](const UsageEntry& entry) {
    const std::lock_guard lock(mutex);
    told += entry.usage.compute_seconds;
  };
  const auto gateway = start(std::move(options));
  REQUIRE(run(*gateway, turn("talk", some_ids(70, 1), 40)).end.outcome == Outcome::length);
  REQUIRE(info_of(ask(*gateway, Kind::save, "talk")).num_computed > 0);
  const StatusSnapshot now = status(*gateway);
  const auto found = std::ranges::find(now.tenants, std::optional(kOwner.id), &TenantUse::tenant);
  REQUIRE(found != now.tenants.end());
  const std::lock_guard lock(mutex);
  CHECK(found->compute_seconds > told + 1e-7);
}

TEST_CASE("an empty prompt continues the answer of the last turn") {
  const TempFolder folder;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  const auto ids = some_ids(20, 3);
  std::vector<TokenId> whole = uninterrupted(kAttention, ids, 30);
  std::vector<TokenId> parts = run(*gateway, turn("talk", ids, 12)).ids;
  append(parts, run(*gateway, turn("talk", {}, 18)).ids);
  CHECK(parts == whole);
}

TEST_CASE("a turn survives the death of the batcher, the worker or the intake, and is stored once") {
  for (const Role role : {Role::batcher, Role::worker, Role::intake, Role::keeper}) {
    INFO("role " << static_cast<int>(role));
    const TempFolder folder;
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    std::vector<TokenId> all = some_ids(60, 1);
    append(all, run(*gateway, turn("talk", all, 10)).ids);
    const auto more = some_ids(50, 2);
    append(all, more);
    const auto sink = std::make_shared<Recorder>();
    sink->on_tokens = [&](std::size_t so_far) {
      if (so_far == 20) crash_for_test(*gateway, role);
    };
    gateway->submit(turn("talk", more, 200), sink);
    CHECK(answer(sink).ids == uninterrupted(kAttention, all, 200));
    const SessionInfo info = info_of(ask(*gateway, Kind::inspect, "talk"));
    CHECK(info.num_tokens == all.size() + 200);
    CHECK(info.num_answers == 2);
  }
}

// --- ends ---

TEST_CASE("a cancelled turn keeps what was delivered, and one without a token leaves the session as it was") {
  const TempFolder folder;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  std::vector<TokenId> all = some_ids(40, 1);
  append(all, run(*gateway, turn("talk", all, 5)).ids);

  const auto sink = std::make_shared<Recorder>();
  const auto more = some_ids(8, 2);
  Request slow = turn("talk", more, 400);
  slow.credit = 7;
  const RequestId id = gateway->submit(slow, sink);
  sink->wait_for_tokens(7);
  gateway->cancel(id);
  const Answered cut = answer(sink);
  REQUIRE(cut.end.outcome == Outcome::cancelled);
  REQUIRE(cut.ids.size() == 7);
  append(all, more);
  append(all, cut.ids);
  CHECK(info_of(ask(*gateway, Kind::inspect, "talk")).num_tokens == all.size());

  Request none = turn("talk", some_ids(30, 3), 10);
  none.credit = 0;
  none.deadline = std::chrono::milliseconds(50);
  REQUIRE(run(*gateway, none).end.outcome == Outcome::deadline);
  const SessionInfo after = info_of(ask(*gateway, Kind::inspect, "talk"));
  CHECK(after.num_tokens == all.size());
  CHECK_FALSE(after.in_use);

  const auto last = some_ids(4, 4);
  append(all, last);
  CHECK(run(*gateway, turn("talk", last, 10)).ids == uninterrupted(kAttention, all, 10));
}

TEST_CASE("a refused turn leaves no session behind") {
  const TempFolder folder;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  CHECK(run(*gateway, turn("talk", some_ids(600, 1), 10)).end.outcome == Outcome::too_long);
  CHECK(names_in(*gateway).empty());
  Request two = turn("talk", some_ids(6, 1), 10);
  two.num_choices = 2;
  const auto sink = std::make_shared<ChoiceRecorder>(2);
  gateway->submit(two, sink);
  for (const Answered& each : sink->wait()) {
    CHECK(each.end.outcome == Outcome::invalid_argument);
    CHECK(each.end.field == "n");
  }
  const Answered bad = run(*gateway, turn("../x", some_ids(6, 1), 10));
  CHECK(bad.end.outcome == Outcome::invalid_argument);
  CHECK(bad.end.field == "session");
  CHECK(names_in(*gateway).empty());
}

TEST_CASE("one request at a time continues a session") {
  const TempFolder folder;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  const auto sink = std::make_shared<Recorder>();
  Request slow = turn("talk", some_ids(8, 2), 400);
  slow.credit = 3;
  const RequestId id = gateway->submit(slow, sink);
  sink->wait_for_tokens(3);
  const Answered second = run(*gateway, turn("talk", some_ids(4, 1), 10));
  CHECK(second.end.outcome == Outcome::quota);
  CHECK(second.end.field == "session");
  const SessionAnswer removal = ask(*gateway, Kind::remove, "talk");
  REQUIRE(std::holds_alternative<scheduler::Refusal>(removal));
  CHECK(std::get<scheduler::Refusal>(removal).field == "session");
  gateway->cancel(id);
  (void)sink->wait_for_end();
  CHECK(run(*gateway, turn("talk", some_ids(4, 1), 10)).end.outcome == Outcome::length);
}

// --- questions ---

TEST_CASE("a fork goes its own way from the same tokens, and the first one does not notice") {
  for (const char* model : {"llama", "gemma3", "mamba"}) {
    INFO(model);
    const TempFolder folder;
    std::vector<TokenId> all = some_ids(90, 1), other;
    {
      const auto gateway = start(options_for(model, folder.path("sessions")));
      append(all, run(*gateway, turn("talk", all, 20)).ids);
      (void)ask(*gateway, Kind::save, "talk");
      other = all;
      const SessionInfo aside = info_of(ask(*gateway, Kind::fork, "talk", "aside"));
      CHECK(aside.num_tokens == all.size());
      CHECK(aside.num_computed == all.size() - 1);
      CHECK_FALSE(aside.in_use);
      const SessionAnswer again = ask(*gateway, Kind::fork, "talk", "aside");
      REQUIRE(std::holds_alternative<scheduler::Refusal>(again));
      CHECK(std::get<scheduler::Refusal>(again).field == "to");
    }
    const auto gateway = start(options_for(model, folder.path("sessions")));
    CHECK(names_in(*gateway) == std::vector<std::string>{"aside", "talk"});
    const auto here = some_ids(7, 2), there = some_ids(33, 3);
    append(all, here);
    append(other, there);
    const Answered aside = run(*gateway, turn("aside", there, 15));
    CHECK(aside.ids == uninterrupted(model, other, 15));
    CHECK(aside.end.usage.cached_tokens == 109);
    CHECK(run(*gateway, turn("talk", here, 15)).ids == uninterrupted(model, all, 15));
  }
}

TEST_CASE("a deleted session is gone with its files, and its name begins anew") {
  const TempFolder folder;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  const auto ids = some_ids(50, 1);
  const auto first = run(*gateway, turn("talk", ids, 10)).ids;
  (void)ask(*gateway, Kind::save, "talk");
  CHECK(std::distance(fs::directory_iterator(files_in(folder)), {}) == 2);
  CHECK(std::get<std::vector<SessionInfo>>(ask(*gateway, Kind::remove, "talk")).empty());
  CHECK(fs::is_empty(files_in(folder)));
  for (const Kind kind : {Kind::remove, Kind::save, Kind::inspect, Kind::fork}) {
    const SessionAnswer none = ask(*gateway, kind, "talk", "other");
    REQUIRE(std::holds_alternative<scheduler::Refusal>(none));
    CHECK(std::get<scheduler::Refusal>(none).outcome == Outcome::invalid_argument);
  }
  CHECK(run(*gateway, turn("talk", ids, 10)).ids == first);
}

TEST_CASE("a tenant neither sees nor continues another one's sessions") {
  const TempFolder folder;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  const scheduler::Tenant other{TenantId{1001}};
  (void)run(*gateway, turn("talk", some_ids(50, 1), 10));
  CHECK(names_in(*gateway, other).empty());
  for (const Kind kind : {Kind::remove, Kind::save, Kind::inspect, Kind::fork})
    CHECK(std::holds_alternative<scheduler::Refusal>(ask(*gateway, kind, "talk", "mine", other)));
  Request theirs = turn("talk", some_ids(20, 2), 5);
  theirs.tenant = other;
  CHECK(run(*gateway, theirs).end.usage.prompt_tokens == 20);
  CHECK(info_of(ask(*gateway, Kind::inspect, "talk")).num_tokens == 60);
  CHECK(info_of(ask(*gateway, Kind::inspect, "talk", {}, other)).num_tokens == 25);
}

TEST_CASE("sessions are refused by name where none are kept, and where another server keeps them") {
  const auto off = start(options_for(kAttention));
  const Answered refused = run(*off, turn("talk", some_ids(4, 1), 5));
  CHECK(refused.end.outcome == Outcome::unsupported);
  CHECK(refused.end.message.find("--sessions-dir") != std::string::npos);
  const TempFolder folder;
  const auto first = start(options_for(kAttention, folder.path("sessions")));
  REQUIRE(run(*first, turn("talk", some_ids(4, 1), 5)).end.outcome == Outcome::length);
  const auto second = start(options_for(kAttention, folder.path("sessions")));
  CHECK(run(*second, turn("talk", some_ids(4, 1), 5)).end.message.find("another server") != std::string::npos);
}

// --- files that cannot be used ---

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a guest is told no folder of the server, whatever is wrong with its sessions") {
  const TempFolder folder;
  const scheduler::Tenant guest{TenantId{2000}, false};
  const auto guests_turn = [&](Gateway& gateway) {
    Request request = turn("talk", some_ids(5, 1), 4);
    request.tenant = guest;
    return run(gateway, request).end;
  };
  const auto is_told = [&](const std::string& message, const std::string& what) {
    INFO(message);
    CHECK(message.find(what) != std::string::npos);
    CHECK(message.find(folder.path()) == std::string::npos);
  };
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    REQUIRE(guests_turn(*gateway).outcome == Outcome::length);
    REQUIRE(run(*gateway, turn("talk", some_ids(5, 1), 4)).end.outcome == Outcome::length);
  }
  for (const char* tenant : {"1000", "2000"})
    std::ofstream(fs::path(folder.path("sessions")) / tenant / "talk.tokens", std::ios::trunc) << "torn";
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    is_told(guests_turn(*gateway).message, "talk.tokens");
    for (const Kind kind : {Kind::list, Kind::inspect, Kind::save}) {
      is_told(info_of(ask(*gateway, kind, "talk", {}, guest)).problem, "talk.tokens");
      CHECK(info_of(ask(*gateway, kind, "talk")).problem.find(folder.path()) == 0);
    }
    is_told(std::get<scheduler::Refusal>(ask(*gateway, Kind::fork, "talk", "aside", guest)).message, "talk.tokens");
  }
  REQUIRE(::chmod(folder.path("sessions").c_str(), 0755) == 0);
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  is_told(guests_turn(*gateway).message, "other users may enter it");
  is_told(std::get<scheduler::Refusal>(ask(*gateway, Kind::list, {}, {}, guest)).message, "other users may enter it");
}

TEST_CASE("a drain ends while questions about sessions are asked again by each answer, and refuses them") {
  const TempFolder folder;
  GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  options.max_session_questions_per_user = 24;
  const auto gateway = start(options);
  for (const char* name : {"one", "two", "three"}) (void)run(*gateway, turn(name, some_ids(40, 1), 8));
  std::atomic<int> num_answered{0};
  Answer<bool> begun, drained;
  std::vector<Answer<scheduler::Refusal>> refused;
  std::function<void(Kind, const std::string&, std::function<void(scheduler::Refusal)>)> ask_again =
      [&](Kind kind, const std::string& name, std::function<void(scheduler::Refusal)> done) {
        gateway->session({.kind = kind, .tenant = kOwner, .name = name, .to = "none"},
                         [&, kind, name, done = std::move(done)](const SessionAnswer& answer) {
                           const auto* refusal = std::get_if<scheduler::Refusal>(&answer);
                           if (refusal && refusal->outcome == Outcome::draining) return done(*refusal);
                           if (++num_answered == 20) begun.callback()(true);
                           ask_again(kind, name, done);
                         });
      };
  for (int i = 0; i < 8; ++i)
    for (const Kind kind : {Kind::list, Kind::inspect, Kind::save})
      ask_again(kind, "one", refused.emplace_back().callback());
  (void)begun.wait();
  gateway->drain([done = drained.callback()] { done(true); });
  CHECK(drained.wait());
  for (const auto& each : refused) CHECK(each.wait().outcome == Outcome::draining);
  CHECK(run(*gateway, turn("one", some_ids(5, 2), 8)).end.outcome == Outcome::draining);
}

TEST_CASE("torn contents are never used: the session goes on from its tokens") {
  std::mt19937 random(7);
  for (const char* model : {"llama", "gemma3", "mamba"}) {
    const TempFolder folder;
    std::vector<TokenId> all = some_ids(90, 1);
    {
      const auto gateway = start(options_for(model, folder.path("sessions")));
      append(all, run(*gateway, turn("talk", all, 20)).ids);
      (void)ask(*gateway, Kind::save, "talk");
    }
    const fs::path contents = files_in(folder) / "talk.kv", tokens = files_in(folder) / "talk.tokens";
    const std::string good = slurp(contents), good_tokens = slurp(tokens);
    REQUIRE_FALSE(good.empty());
    const auto more = some_ids(7, 2);
    append(all, more);
    const auto expected = uninterrupted(model, all, 8);
    for (int i = 0; i < 6; ++i) {
      std::string bytes = good;
      const std::size_t at = i < 2 ? random() % 200 : random() % good.size();
      if (i % 2 == 0)
        bytes[at] = static_cast<char>(bytes[at] ^ 1);
      else
        bytes.resize(at);
      INFO(model << ", " << (i % 2 == 0 ? "flipped at " : "cut to ") << at);
      std::ofstream(contents, std::ios::binary | std::ios::trunc) << bytes;
      std::ofstream(tokens, std::ios::binary | std::ios::trunc) << good_tokens;
      const auto gateway = start(options_for(model, folder.path("sessions")));
      const Answered answered = run(*gateway, turn("talk", more, 8));
      CHECK(answered.ids == expected);
      CHECK(answered.end.usage.cached_tokens == 0);
      CHECK(answered.end.message.find("computed again") != std::string::npos);
    }
  }
}

TEST_CASE("a session whose tokens are torn is refused by name, listed with its problem, and can be deleted") {
  const TempFolder folder;
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    (void)run(*gateway, turn("talk", some_ids(50, 1), 10));
  }
  const fs::path file = files_in(folder) / "talk.tokens";
  std::string bytes = slurp(file);
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  const Answered refused = run(*gateway, turn("talk", some_ids(5, 2), 10));
  CHECK(refused.end.outcome == Outcome::invalid_argument);
  CHECK(refused.end.message.find("damaged") != std::string::npos);
  CHECK(slurp(file) == bytes);
  const SessionAnswer all = ask(*gateway, Kind::list, {});
  CHECK(std::get<std::vector<SessionInfo>>(all).at(0).problem.find("damaged") != std::string::npos);
  (void)ask(*gateway, Kind::remove, "talk");
  CHECK(names_in(*gateway).empty());
}

TEST_CASE("a token beyond the vocabulary is refused by name, with recompute, too, and the server goes on") {
  const TempFolder folder;
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    (void)run(*gateway, turn("talk", some_ids(50, 1), 10));
    (void)run(*gateway, turn("other", some_ids(50, 1), 10));
    (void)ask(*gateway, Kind::save, "talk");
  }
  for (const TokenId wrong : {TokenId{1'000'000}, std::numeric_limits<TokenId>::max()}) {
    {
      const auto store = SessionStore::open(folder.path("sessions"));
      REQUIRE(store);
      engine::SequenceRecord record = store->open_tokens({kOwner.id, "talk"})->record();
      record.tokens.at(7) = wrong;
      REQUIRE(store->write_tokens({kOwner.id, "talk"}, record));
    }
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    for (const bool recompute : {false, true}) {
      Request request = turn("talk", some_ids(5, 2), 10);
      request.session_recompute = recompute;
      const Answered refused = run(*gateway, request);
      CHECK(refused.end.outcome == Outcome::invalid_argument);
      CHECK(refused.end.message.find(fmt::format("token {} is not in the vocabulary", wrong)) != std::string::npos);
      CHECK(refused.end.message.find("talk") != std::string::npos);
    }
    CHECK(run(*gateway, turn("other", some_ids(5, 2), 10)).end.outcome == Outcome::length);
  }
}

TEST_CASE("what lies in the place of a session's tokens is named, and only that session is without") {
  const TempFolder folder;
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    (void)run(*gateway, turn("talk", some_ids(50, 1), 10));
    (void)ask(*gateway, Kind::save, "talk");
  }
  const fs::path files = files_in(folder);
  std::ofstream(files / "empty.tokens").flush();
  fs::create_symlink("talk.tokens", files / "link.tokens");
  REQUIRE(::mkfifo((files / "pipe.tokens").c_str(), 0600) == 0);
  fs::create_directories(files / "folder.tokens");
  fs::create_directories(files.parent_path() / "01000");  // no one's
  const std::string kept = slurp(files / "talk.tokens");
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  CHECK(names_in(*gateway) == std::vector<std::string>{"empty", "folder", "link", "pipe", "talk"});
  const SessionAnswer all = ask(*gateway, Kind::list, {});
  for (const SessionInfo& info : std::get<std::vector<SessionInfo>>(all)) {
    INFO(info.name << ": " << info.problem);
    CHECK(info.problem.empty() == (info.name == "talk"));
    if (info.name == "talk") continue;
    CHECK(info.problem.find(info.name + ".tokens") != std::string::npos);
    const Answered refused = run(*gateway, turn(info.name, some_ids(5, 2), 10));
    CHECK(refused.end.outcome == Outcome::invalid_argument);
    CHECK(refused.end.message.find(info.name + ".tokens") != std::string::npos);
    CHECK(std::holds_alternative<scheduler::Refusal>(ask(*gateway, Kind::fork, info.name, "aside")));
    CHECK(std::holds_alternative<scheduler::Refusal>(ask(*gateway, Kind::fork, "talk", info.name)));
    const SessionAnswer removed = ask(*gateway, Kind::remove, info.name);
    CHECK(std::holds_alternative<scheduler::Refusal>(removed) == (info.name == "folder"));
  }
  CHECK(slurp(files / "talk.tokens") == kept);
  CHECK(names_in(*gateway) == std::vector<std::string>{"folder", "talk"});
  CHECK(run(*gateway, turn("talk", some_ids(5, 2), 10)).end.outcome == Outcome::length);
  CHECK(run(*gateway, turn("link", some_ids(5, 2), 10)).end.outcome == Outcome::length);  // its name begins anew
}

TEST_CASE("what lies in the place of a session's contents costs a computation, not the session") {
  const TempFolder folder;
  std::vector<TokenId> all = some_ids(50, 1);
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    append(all, run(*gateway, turn("talk", all, 10)).ids);
  }
  const fs::path contents = files_in(folder) / "talk.kv";
  for (const char* kind : {"empty", "link", "pipe", "folder"}) {
    INFO(kind);
    fs::remove_all(contents);
    if (kind[0] == 'e') std::ofstream(contents).flush();
    if (kind[0] == 'l') fs::create_symlink("talk.tokens", contents);
    if (kind[0] == 'p') REQUIRE(::mkfifo(contents.c_str(), 0600) == 0);
    if (kind[0] == 'f') fs::create_directories(contents / "inside");
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    const auto more = some_ids(5, 2);
    append(all, more);
    const Answered answered = run(*gateway, turn("talk", more, 10));
    CHECK(answered.ids == uninterrupted(kAttention, all, 10));
    append(all, answered.ids);
  }
}

TEST_CASE("a tenant whose folder cannot be used is refused by name, until it is mended; others are served") {
  for (const bool is_link : {false, true}) {
    const TempFolder folder;
    const scheduler::Tenant other{TenantId{1001}};
    {
      const auto gateway = start(options_for(kAttention, folder.path("sessions")));
      (void)run(*gateway, turn("talk", some_ids(50, 1), 10));
      Request theirs = turn("talk", some_ids(20, 2), 5);
      theirs.tenant = other;
      (void)run(*gateway, theirs);
    }
    const fs::path files = files_in(folder);
    if (is_link) {
      fs::rename(files, folder.path("elsewhere"));
      fs::create_directory_symlink(folder.path("elsewhere"), files);
    } else {
      fs::permissions(files, fs::perms(0755));
    }
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    const Answered refused = run(*gateway, turn("talk", some_ids(5, 2), 10));
    CHECK(refused.end.outcome == Outcome::unsupported);
    CHECK(refused.end.message.find(files.string()) != std::string::npos);
    CHECK(std::holds_alternative<scheduler::Refusal>(ask(*gateway, Kind::list, {})));
    CHECK(names_in(*gateway, other) == std::vector<std::string>{"talk"});
    Request theirs = turn("talk", some_ids(20, 2), 5);
    theirs.tenant = other;
    CHECK(run(*gateway, theirs).end.outcome == Outcome::length);
    if (is_link) {
      fs::remove(files);
      fs::rename(folder.path("elsewhere"), files);
    } else {
      fs::permissions(files, fs::perms::owner_all);
    }
    CHECK(names_in(*gateway) == std::vector<std::string>{"talk"});
    CHECK(run(*gateway, turn("talk", some_ids(5, 2), 10)).end.usage.prompt_tokens == 65);
  }
}

TEST_CASE("a turn of a tenant whose folder was mended is refused once more, and the folder is read beside it") {
  const TempFolder folder;
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    (void)run(*gateway, turn("talk", some_ids(50, 1), 10));
  }
  const fs::path files = files_in(folder);
  fs::permissions(files, fs::perms(0755));
  const auto gateway = start(options_for(kAttention, folder.path("sessions")));
  fs::permissions(files, fs::perms::owner_all);
  CHECK(run(*gateway, turn("talk", some_ids(5, 2), 10)).end.outcome == Outcome::unsupported);
  CHECK(names_in(*gateway) == std::vector<std::string>{"talk"});
  CHECK(run(*gateway, turn("talk", some_ids(5, 2), 10)).end.usage.prompt_tokens == 65);
}

TEST_CASE("under other numerics a session is refused unless it is to be recomputed, with another model always") {
  const TempFolder folder;
  std::vector<TokenId> all = some_ids(50, 1);
  {
    const auto gateway = start(options_for(kAttention, folder.path("sessions")));
    append(all, run(*gateway, turn("talk", all, 10)).ids);
    (void)ask(*gateway, Kind::save, "talk");
  }
  {
    const auto other = start(options_for("qwen2", folder.path("sessions")));
    Request request = turn("talk", some_ids(5, 2), 10);
    request.session_recompute = true;
    const Answered refused = run(*other, request);
    CHECK(refused.end.outcome == Outcome::unsupported);
    CHECK(refused.end.message.find("another model") != std::string::npos);
  }
  GatewayOptions wide = options_for(kAttention, folder.path("sessions"));
  wide.model().load.kv_type = kernels::KvType::f32;
  const auto gateway = start(wide);
  const auto more = some_ids(5, 2);
  const Answered refused = run(*gateway, turn("talk", more, 10));
  CHECK(refused.end.outcome == Outcome::unsupported);
  CHECK(refused.end.message.find("--recompute") != std::string::npos);
  Request request = turn("talk", more, 10);
  request.session_recompute = true;
  const Answered answered = run(*gateway, request);
  append(all, more);
  CHECK(answered.end.outcome == Outcome::length);
  CHECK(answered.end.usage.prompt_tokens == all.size());
  CHECK(answered.end.usage.cached_tokens == 0);
  CHECK(answered.ids == run(*gateway, turn({}, all, 10)).ids);
  CHECK(run(*gateway, turn("talk", more, 10)).end.outcome == Outcome::length);  // it is this server's from then on
}

TEST_CASE(
    "a session goes on with the same weights in the place of its model, and is refused with others until these go") {
  const TempFolder folder;
  const GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  const auto gateway = start(options);
  const auto replace = [&](const std::string& path) { replace_model(*gateway, options, path); };
  std::vector<TokenId> all;
  const auto go_on = [&](unsigned seed) {
    const auto ids = some_ids(20, seed);
    append(all, ids);
    const Answered answered = run(*gateway, turn("talk", ids, 10));
    CHECK(answered.ids == uninterrupted(kAttention, all, 10));
    append(all, answered.ids);
  };
  go_on(1);
  replace(options.models.front().path);
  go_on(2);
  replace(options_for("qwen2").models.front().path);
  for (const bool recompute : {false, true}) {
    Request request = turn("talk", some_ids(20, 3), 10);
    request.session_recompute = recompute;
    const Answered refused = run(*gateway, request);
    CHECK(refused.end.outcome == Outcome::unsupported);
    CHECK(refused.end.message.find("another model") != std::string::npos);
  }
  replace(options.models.front().path);
  go_on(4);
}

// The embedded model and its draft model are two models of one vocabulary, and none has a chat template.
const std::string kFirst = TROUPE_MODELS "/tales-5m-tq2_0.gguf", kSecond = TROUPE_MODELS "/tales-draft-q8_0.gguf";

GatewayOptions options_of_first(const TempFolder& folder) {
  GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  options.model().path = kFirst;
  return options;
}

Request recomputing_turn(std::vector<TokenId> ids) {
  Request request = turn("talk", std::move(ids), 10);
  request.session_recompute = true;
  request.wants_proof = true;
  return request;
}

TEST_CASE("a session is computed anew by another model of its vocabulary and chat template, and its receipt says so") {
  const TempFolder folder;
  const GatewayOptions options = options_of_first(folder);
  const auto gateway = start(options);
  const std::string first = gateway->model()->numerics_id();
  std::vector<TokenId> all = some_ids(50, 1);
  append(all, run(*gateway, turn("talk", all, 10)).ids);
  (void)ask(*gateway, Kind::save, "talk");
  replace_model(*gateway, options, kSecond);
  const std::string second = gateway->model()->numerics_id();
  REQUIRE(first != second);

  const Answered refused = run(*gateway, turn("talk", some_ids(20, 2), 10));
  CHECK(refused.end.outcome == Outcome::unsupported);
  CHECK_THAT(refused.end.message, Contains("another model (numerics " + first + ")") &&
                                      Contains("with the same vocabulary and chat template") &&
                                      Contains("--recompute"));
  const auto go_on = [&](unsigned seed, const std::string& from, const std::string& now) {
    INFO(seed);
    const auto ids = some_ids(20, seed);
    append(all, ids);
    const Answered answered = run(*gateway, recomputing_turn(ids));
    REQUIRE(answered.end.outcome == Outcome::length);
    CHECK(answered.end.usage.prompt_tokens == all.size());
    CHECK(answered.end.recomputed_from == from);
    REQUIRE(answered.end.proof);
    CHECK(answered.end.proof->recomputed_from == from);
    CHECK(answered.end.proof->numerics_id == now);
    CHECK(*answered.end.proof->prompt == all);
    CHECK(answered.ids == run(*gateway, turn({}, all, 10)).ids);
    append(all, answered.ids);
    CHECK(info_of(ask(*gateway, Kind::save, "talk")).numerics_id == now);
  };
  go_on(2, first, second);
  const auto more = some_ids(20, 3);
  append(all, more);
  const Answered plain = run(*gateway, turn("talk", more, 10));  // it is the second model's from then on
  CHECK(plain.end.outcome == Outcome::length);
  CHECK(plain.end.recomputed_from.empty());
  append(all, plain.ids);
  go_on(4, "", second);  // as it was, although it was allowed to be recomputed
  replace_model(*gateway, options, kFirst);
  go_on(5, second, first);
}

TEST_CASE("a session is not computed anew where vocabulary or template differ, or nothing is known of them") {
  const TempFolder folder;
  const GatewayOptions options = options_of_first(folder);
  const auto file = engine::open_gguf(kSecond);
  REQUIRE(file);
  troupe::test::MetadataFile metadata((*file)->metadata());
  std::get<std::vector<std::string>>(metadata["tokenizer.ggml.tokens"])[1000] = "another";
  const std::string other_vocabulary = folder.write("other.gguf", troupe::test::model_with(**file, metadata));
  const struct {
    std::string path, chat_template, why;
    bool is_old = false;
  } cases[] = {
      {other_vocabulary, "", "the vocabulary of this one is another: ask that model, or begin another session"},
      {kSecond, "{{ messages[0]['content'] }}", "the chat template of this one is another"},
      {options_for(kAttention).models.front().path, "", "this one has no vocabulary that could be compared"},
      {kSecond, "", "does not say whether the vocabulary and the chat template are the same", true},
  };
  for (const auto& [path, chat_template, why, is_old] : cases) {
    INFO(why);
    const auto gateway = start(options);
    Answered begun = run(*gateway, turn("talk", some_ids(50, 1), 10));
    REQUIRE(begun.end.outcome == Outcome::length);
    if (is_old) {
      const fs::path tokens = files_in(folder) / "talk.tokens";
      const std::string old = troupe::test::as_version_3(slurp(tokens));
      std::ofstream(tokens, std::ios::binary | std::ios::trunc) << old;
    }
    replace_model(*gateway, options, path, chat_template);
    const Answered refused = run(*gateway, recomputing_turn(some_ids(20, 2)));
    CHECK(refused.end.outcome == Outcome::unsupported);
    CHECK_THAT(refused.end.message, Contains("another model") && Contains(why));
    replace_model(*gateway, options, kFirst);  // the session is as it was
    const Answered answered = run(*gateway, turn("talk", some_ids(5, 3), 10));
    CHECK(answered.end.outcome == Outcome::length);
    CHECK(answered.end.usage.prompt_tokens == 65);
    REQUIRE(std::holds_alternative<std::vector<SessionInfo>>(ask(*gateway, Kind::remove, "talk")));
  }
}

TEST_CASE("where contents do not fit the memory for copies, the tokens alone are saved") {
  const TempFolder folder;
  GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  options.max_session_buffer_bytes = 1000;
  std::vector<TokenId> all = some_ids(50, 1);
  {
    const auto gateway = start(options);
    append(all, run(*gateway, turn("talk", all, 10)).ids);
    const SessionInfo saved = info_of(ask(*gateway, Kind::save, "talk"));
    CHECK(saved.num_tokens == 60);
    CHECK(saved.num_computed == 0);
  }
  const auto gateway = start(options);
  const auto more = some_ids(5, 2);
  append(all, more);
  CHECK(run(*gateway, turn("talk", more, 10)).ids == uninterrupted(kAttention, all, 10));
}

TEST_CASE("contents above the rate of writing are not saved, and the tokens are") {
  const TempFolder folder;
  GatewayOptions options = options_for(kAttention, folder.path("sessions"));
  options.max_session_write_rate = 1;
  const auto gateway = start(options);
  for (const char* name : {"first", "second"}) (void)run(*gateway, turn(name, some_ids(50, 1), 10));
  CHECK(info_of(ask(*gateway, Kind::save, "first")).num_computed == 59);  // more than the rate: by what was saved up
  const SessionInfo second = info_of(ask(*gateway, Kind::save, "second"));
  CHECK(second.num_tokens == 60);
  CHECK(second.num_computed == 0);
}

// --- at random ---

// TROUPE_CHURN=1000: so many turns, instead of few. Each may be forked from, or followed by a new server, where some
// find no contents, as a killed one leaves them.
TEST_CASE("at random: turns, forks, deletions and restarts, and no answer differs from one never interrupted") {
  const char* const asked = std::getenv("TROUPE_CHURN");
  const int num_turns = asked ? std::atoi(asked) : 24;
  std::mt19937 random(11);
  for (const char* model : {"llama", "gemma3", "mamba"}) {
    INFO(model);
    const TempFolder folder;
    GatewayOptions options = options_for(model, folder.path("sessions"));
    options.model().load.num_blocks = 24;
    const auto reference = start(options_for(model));
    auto gateway = start(options);
    std::map<std::string, std::vector<TokenId>> sessions;
    for (int i = 0; i < num_turns; ++i) {
      const std::string name(1, static_cast<char>('a' + random() % 3));
      std::vector<TokenId>& all = sessions[name];
      if (all.size() > 300) {
        (void)ask(*gateway, Kind::remove, name);
        all.clear();
      }
      const auto ids = some_ids(1 + random() % 60, random());
      append(all, ids);
      const std::uint32_t max_tokens = 1 + random() % 40;
      const Answered answered = run(*gateway, turn(name, ids, max_tokens));
      INFO("turn " << i << " of " << name << ": " << answered.end.message);
      REQUIRE(answered.end.outcome == Outcome::length);
      REQUIRE(answered.ids == run(*reference, turn({}, all, max_tokens)).ids);
      append(all, answered.ids);
      const auto chance = random() % 6;
      if (chance == 0) {
        (void)ask(*gateway, Kind::remove, "fork");
        REQUIRE(std::holds_alternative<std::vector<SessionInfo>>(ask(*gateway, Kind::fork, name, "fork")));
        sessions["fork"] = all;
        const auto more = some_ids(5, random());
        append(sessions["fork"], more);
        REQUIRE(run(*gateway, turn("fork", more, 5)).ids == run(*reference, turn({}, sessions["fork"], 5)).ids);
      } else if (chance < 3) {
        if (chance == 1) (void)ask(*gateway, Kind::save, name);
        gateway = nullptr;
        gateway = start(options);
      }
    }
  }
}

}  // namespace
}  // namespace troupe::actors
