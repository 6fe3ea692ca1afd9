// What was answered is on disk and stays, in whatever order the two threads of Sessions come to their jobs, and
// wherever the server is killed.
//
// The threads run one job at a time, when the test says so: behind each job waits a gate, a question of another tenant
// whose answer does not return before it is opened. A kill is a copy of the directory while both threads wait.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "actors/sessions/sessions.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using scheduler::Outcome;
using scheduler::Refusal;
using troupe::test::TempFolder;
using Kind = SessionQuestion::Kind;
using Tokens = std::vector<TokenId>;

const scheduler::Tenant kAlice{.id = TenantId{1000}, .is_owner = true, .policy = {}};
const scheduler::Tenant kBob{.id = TenantId{1001}, .is_owner = true, .policy = {}};
const scheduler::Tenant kGatekeeper{.id = TenantId{77}, .is_owner = true, .policy = {}};

std::shared_ptr<const engine::LoadedModel> small_model() {
  static const auto model = [] {
    engine::LoadOptions options;
    options.kernels = "scalar";
    options.num_blocks = 8;
    options.context = 128;
    auto loaded = engine::LoadedModel::load(std::string(TROUPE_TEST_DATA) + "/golden/llama.gguf", options);
    if (!loaded) FAIL(loaded.error().message);
    return *loaded;
  }();
  return model;
}

Tokens some_tokens(std::mt19937& random, std::size_t count) {
  Tokens tokens;
  while (tokens.size() < count) tokens.push_back(3 + static_cast<TokenId>(random() % 40));
  return tokens;
}

engine::SequenceRecord record_of(const Tokens& tokens) {
  return {.numerics_id = small_model()->numerics_id(),
          .model_hash = small_model()->model().content_hash(),
          .tokens = tokens,
          .created = 1'700'000'000,
          .num_answers = 1};
}

class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_reached_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false, is_open_ = false;
};

// Where one answer arrives.
struct Asked {
  std::optional<SessionAnswer> answer;
  bool is_ok() const { return answer && std::holds_alternative<std::vector<SessionInfo>>(*answer); }
  const std::vector<SessionInfo>& infos() const { return std::get<std::vector<SessionInfo>>(*answer); }
};

struct Ended final : StreamSink {
  void tokens(TokenRun) override {}
  void end(End how) override { end_ = std::move(how); }
  std::optional<End> end_;
};

enum Thread : std::uint8_t { small, large };

// Sessions whose threads stand still, but for step().
class Stepped {
 public:
  Stepped(const std::string& directory, config::SessionLimits limits) : directory_(directory) {
    limits.max_session_questions_per_user = 1 << 20;  // of the gatekeeper
    {
      const auto store = SessionStore::open(directory);
      REQUIRE(store);
      REQUIRE(store->write_tokens({kGatekeeper.id, "gate"}, record_of({1})));
    }
    // Each turn costs as much as another: gates and jobs alternate.
    sessions_.emplace(SessionsPlace{directory, {}}, limits, std::vector<int>{}, Sessions::Log{},
                      [] { return std::chrono::steady_clock::time_point{}; });
    REQUIRE(sessions_->status());
    for (const Thread thread : {small, large}) {
      shut(thread);
      gates_[thread].front()->wait_until_reached();
    }
  }
  ~Stepped() {
    for (auto& gates : gates_)
      for (const auto& gate : gates) gate->open();
    sessions_->finish();
  }

  Sessions& operator*() { return *sessions_; }
  Sessions* operator->() { return &*sessions_; }
  const std::string& directory() const { return directory_; }

  // After anything that may have posted a job.
  void posted() {
    shut(small);
    shut(large);
  }
  bool can_step(Thread thread) const { return gates_[thread].size() > 1; }
  // Lets the thread run what lies before its next gate.
  void step(Thread thread) {
    REQUIRE(can_step(thread));
    gates_[thread].front()->open();
    gates_[thread].pop_front();
    gates_[thread].front()->wait_until_reached();
  }
  void run_all() {
    for (int round = 0; round < 4; ++round) {  // a job may post another one behind the last gate
      posted();
      for (const Thread thread : {small, large})
        while (can_step(thread)) step(thread);
    }
  }

  std::shared_ptr<Asked> ask(Kind kind, const scheduler::Tenant& tenant, const std::string& name,
                             const std::string& to = {}) {
    auto asked = std::make_shared<Asked>();
    sessions_->ask({.kind = kind, .tenant = tenant, .name = name, .to = to},
                   [asked](SessionAnswer answer) { asked->answer = std::move(answer); });
    posted();
    return asked;
  }

 private:
  void shut(Thread thread) {
    const auto gate = std::make_shared<Gate>();
    gates_[thread].push_back(gate);
    const Kind kind = thread == small ? Kind::list : Kind::save;
    sessions_->ask({.kind = kind, .tenant = kGatekeeper, .name = "gate", .to = {}},
                   [gate](const SessionAnswer&) { gate->pass(); });
  }

  const std::string directory_;
  std::optional<Sessions> sessions_;
  std::deque<std::shared_ptr<Gate>> gates_[2];
};

// The tokens on disk after a kill: of a copy of the directory, as the next server finds it.
std::map<SessionKey, Tokens> after_kill(const std::string& directory, const std::string& copy) {
  fs::remove_all(copy);
  fs::copy(directory, copy, fs::copy_options::recursive);
  std::map<SessionKey, Tokens> all;
  const auto store = SessionStore::open(copy);
  REQUIRE(store);
  const auto found = store->scan();
  REQUIRE(found);
  for (const auto& each : *found) {
    if (each.key.tenant == kGatekeeper.id) continue;
    const auto file = store->open_tokens(each.key);
    if (!file) FAIL(file.error().message);
    all.emplace(each.key, file->record().tokens);
  }
  return all;
}

void put(const std::string& directory, const scheduler::Tenant& tenant, const std::string& name, const Tokens& tokens) {
  const auto store = SessionStore::open(directory);
  REQUIRE(store);
  REQUIRE(store->write_tokens({tenant.id, name}, record_of(tokens)));
}

// --- one after the other ---

TEST_CASE("a fork to a name that was evicted just before stays, however late the other thread comes") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions");
  for (const char* name : {"v00", "v01", "v02", "v03"}) put(directory, kAlice, name, {1, 2, 3});
  Stepped sessions(directory, {.max_sessions_per_user = 4});
  const auto first = sessions.ask(Kind::fork, kAlice, "v03", "new");  // evicts v00
  while (!first->answer) sessions.step(large);
  REQUIRE(first->is_ok());
  const auto second = sessions.ask(Kind::fork, kAlice, "v03", "v00");
  while (sessions.can_step(large)) sessions.step(large);  // the other one is busy with a list
  REQUIRE(second->is_ok());
  CHECK(after_kill(directory, folder.path("copy")).contains({kAlice.id, "v00"}));
  sessions.run_all();
  const auto left = after_kill(directory, folder.path("copy"));
  CHECK(left.contains({kAlice.id, "v00"}));
  CHECK(left.contains({kAlice.id, "new"}));
  CHECK(left.size() == 4);
}

TEST_CASE("a fork to a name that was deleted just before stays, and the deletion is answered") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions");
  for (const char* name : {"talk", "x"}) put(directory, kAlice, name, {1, 2, 3});
  put(directory, kBob, "x", {4, 5});
  Stepped sessions(directory, {});
  const auto deleted = sessions.ask(Kind::remove, kAlice, "x");
  const auto forked = sessions.ask(Kind::fork, kAlice, "talk", "x");
  while (sessions.can_step(large)) sessions.step(large);
  REQUIRE(forked->is_ok());
  CHECK_FALSE(deleted->answer);
  sessions.run_all();
  CHECK(deleted->is_ok());
  const auto left = after_kill(directory, folder.path("copy"));
  CHECK(left.at({kAlice.id, "x"}) == Tokens{1, 2, 3});
  CHECK(left.at({kBob.id, "x"}) == Tokens{4, 5});
}

TEST_CASE("a save or a look at a session that is deleted meanwhile is refused, also if its name begins anew") {
  for (const Kind kind : {Kind::save, Kind::inspect}) {
    for (const bool again : {false, true}) {
      const TempFolder folder;
      const std::string directory = folder.path("sessions");
      for (const char* name : {"talk", "x"}) put(directory, kAlice, name, {1, 2, 3});
      Stepped sessions(directory, {});
      const auto asked = sessions.ask(kind, kAlice, "x");
      const auto deleted = sessions.ask(Kind::remove, kAlice, "x");
      if (again) (void)sessions.ask(Kind::fork, kAlice, "talk", "x");
      sessions.run_all();
      REQUIRE(deleted->is_ok());
      REQUIRE(asked->answer);
      REQUIRE(std::holds_alternative<Refusal>(*asked->answer));
      CHECK(std::get<Refusal>(*asked->answer).message.find("was deleted") != std::string::npos);
    }
  }
}

TEST_CASE("a list does not have a session that is deleted while it is made, nor one without its first answer") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions");
  for (const char* name : {"talk", "x"}) put(directory, kAlice, name, {1, 2, 3});
  Stepped sessions(directory, {});
  auto begun = sessions->begin(kAlice, "begun", false);
  REQUIRE(std::holds_alternative<std::shared_ptr<SessionTurn>>(begun));
  const auto deleted = sessions.ask(Kind::remove, kAlice, "x");
  const auto listed = sessions.ask(Kind::list, kAlice, "");
  sessions.run_all();
  REQUIRE(listed->is_ok());
  REQUIRE(listed->infos().size() == 1);
  CHECK(listed->infos()[0].name == "talk");
  CHECK(listed->infos()[0].problem.empty());
  sessions->wrap(std::get<std::shared_ptr<SessionTurn>>(begun), std::make_shared<Ended>())->end({});
}

TEST_CASE("as many questions of a tenant are open as may be; one more is refused with a time to try again") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions");
  for (const auto& tenant : {kAlice, kBob}) put(directory, tenant, "talk", {1, 2, 3});
  Sessions sessions({directory, {}}, {.max_session_questions_per_user = 2}, {});
  const auto ask = [&](const scheduler::Tenant& tenant) {
    auto asked = std::make_shared<Asked>();
    sessions.ask({.kind = Kind::list, .tenant = tenant, .name = {}, .to = {}},
                 [asked](SessionAnswer answer) { asked->answer = std::move(answer); });
    return asked;
  };
  Gate gate;
  sessions.ask({.kind = Kind::list, .tenant = kGatekeeper, .name = {}, .to = {}},
               [&](const SessionAnswer&) { gate.pass(); });
  gate.wait_until_reached();
  const auto first = ask(kAlice), second = ask(kAlice), third = ask(kAlice), bobs = ask(kBob);
  REQUIRE(third->answer);
  const auto& refused = std::get<Refusal>(*third->answer);
  CHECK(refused.outcome == Outcome::quota);
  CHECK(refused.field == "max_session_questions_per_user");
  CHECK(refused.limit == 2u);
  CHECK(refused.retry_after > 0);
  gate.open();
  sessions.finish();
  for (const auto& asked : {first, second, bobs}) CHECK(asked->is_ok());
  const auto again = ask(kAlice);
  sessions.finish();
  CHECK(again->is_ok());
}

TEST_CASE("a list reads the files of a session once, and again when it has changed") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions");
  put(directory, kAlice, "talk", {1, 2, 3});
  Sessions sessions({directory, {}}, {}, {});
  const auto list = [&] {
    Asked asked;
    sessions.ask({.kind = Kind::list, .tenant = kAlice, .name = {}, .to = {}},
                 [&](SessionAnswer answer) { asked.answer = std::move(answer); });
    sessions.finish();
    REQUIRE(asked.is_ok());
    return asked.infos();
  };
  CHECK(list().at(0).num_tokens == 3);
  const auto file = fs::path(directory) / "1000" / "talk.tokens";
  fs::rename(file, folder.path("aside"));
  CHECK(list().at(0).num_tokens == 3);
  CHECK(list().at(0).problem.empty());
  fs::rename(folder.path("aside"), file);
  auto begun = sessions.begin(kAlice, "talk", false);
  const auto turn = std::get<std::shared_ptr<SessionTurn>>(begun);
  turn->load({.model = small_model()}, [&](const SessionTurn::Loaded&) { turn->set_prompt({1, 2, 3, 4, 5}); });
  sessions.finish();
  auto sink = sessions.wrap(turn, std::make_shared<Ended>());
  End end;
  end.outcome = Outcome::length;
  sink->end(end);
  CHECK(list().at(0).num_tokens == 5);
}

TEST_CASE("contents that are not wanted any more when they are written do not get their name") {
  const TempFolder folder;
  SessionFiles files(std::move(*SessionStore::open(folder.path("sessions"))));
  const SessionKey key{kAlice.id, "talk"};
  const engine::SequenceImage image(*small_model(), 2);
  CHECK_FALSE(files.write_contents(key, 1, record_of({1, 2, 3}), image, [] { return false; }).is_there);
  CHECK(fs::is_empty(fs::path(folder.path("sessions")) / "1000"));
  CHECK(files.write_contents(key, 2, record_of({1, 2, 3}), image, [] { return true; }).is_there);
  CHECK(files.store().open_contents(key));
}

// --- at random ---

// What must be there, beside what the sessions say.
class Model {
 public:
  Model(unsigned seed, const TempFolder& folder) : random_(seed), folder_(folder), limits_{.max_sessions_per_user = 5} {
    if (seed % 2 == 0) limits_.max_session_bytes = 60'000;  // a few contents
    for (const auto& tenant : {kAlice, kBob}) {
      for (const char* name : {"a", "b"}) {
        stored_[{tenant.id, name}] = some_tokens(random_, 20);
        put(folder_.path("0"), tenant, name, stored_[{tenant.id, name}]);
      }
    }
    sessions_.emplace(folder_.path("0"), limits_);
  }
  ~Model() {
    for (Turn& turn : turns_)
      if (!turn.has_ended) turn.wrapped->end({});
    turns_.clear();
  }

  void act() {
    const scheduler::Tenant& tenant = random_() % 4 ? kAlice : kBob;
    const std::string name = draw_name();
    switch (random_() % 12) {
      case 0:
      case 1:
      case 2:
        return fork(tenant, name, draw_name());
      case 3:
        return remove(tenant, name);
      case 4:
        (void)sessions_->ask(Kind::save, tenant, name);
        return;
      case 5:
        (void)sessions_->ask(Kind::list, tenant, "");
        return;
      case 6:
      case 7:
        return begin_turn(tenant, name);
      case 8:
      case 9:
        return go_on_with_turn();
      default:
        for (unsigned steps = random_() % 6; steps > 0; --steps) {
          const Thread thread = random_() % 2 ? small : large;
          if ((*sessions_).can_step(thread)) sessions_->step(thread);
        }
        take_answers();
    }
  }

  // While both threads stand still.
  void check_killed() {
    take_answers();
    const auto disk = after_kill(sessions_->directory(), folder_.path("copy"));
    for (const auto& [key, tokens] : stored_) check_one(key, disk, tokens);
    for (const auto& [key, tokens] : disk)
      if (deleted_.contains(key) && !stored_.contains(key) && !is_pending(key)) FAIL(describe(key) << " is back");
  }

  // Another server goes on from there.
  void kill() {
    check_killed();
    const std::string next = folder_.path(std::to_string(++num_kills_));
    auto disk = after_kill(sessions_->directory(), next);
    for (Turn& turn : turns_)
      if (!turn.has_ended) turn.wrapped->end({});
    turns_.clear();
    pending_.clear();
    deleted_.clear();
    sessions_.reset();
    stored_ = std::move(disk);
    sessions_.emplace(next, limits_);
  }

  void check_quiet() {
    for (Turn& turn : turns_)
      if (!turn.has_ended) turn.wrapped->end({});
    turns_.clear();
    sessions_->posted();
    sessions_->run_all();
    take_answers();
    REQUIRE(pending_.empty());
    check_killed();
    const auto disk = after_kill(sessions_->directory(), folder_.path("copy"));
    std::size_t listed = 0;
    for (const auto& tenant : {kAlice, kBob}) {
      const auto all = sessions_->ask(Kind::list, tenant, "");
      sessions_->run_all();
      REQUIRE(all->is_ok());
      CHECK(all->infos().size() <= limits_.max_sessions_per_user);
      for (const SessionInfo& info : all->infos()) {
        ++listed;
        const SessionKey key{tenant.id, info.name};
        INFO(describe(key));
        CHECK(info.problem.empty());
        REQUIRE(disk.contains(key));
        CHECK(disk.at(key) == stored_.at(key));
        CHECK(info.bytes == bytes_of(key));  // no contents of a session that was, none that are missing
      }
    }
    CHECK(listed == disk.size());
    CHECK(stored_.size() >= disk.size());
  }

 private:
  struct Turn {
    SessionKey key;
    std::shared_ptr<SessionTurn> turn;
    std::shared_ptr<StreamSink> wrapped{};
    std::shared_ptr<Ended> sink;
    std::shared_ptr<std::optional<SessionTurn::Loaded>> loaded;
    bool has_ended = false;
  };
  struct Pending {
    Kind kind = Kind::fork;
    SessionKey key;
    Tokens tokens;
    std::shared_ptr<Asked> asked{};  // or:
    std::shared_ptr<Ended> turn_end{};
  };

  std::string draw_name() { return std::string(1, static_cast<char>('a' + random_() % 7)); }
  static std::string describe(const SessionKey& key) { return key.name + " of " + session_folder_name(key.tenant); }
  bool is_pending(const SessionKey& key) const {
    return std::ranges::any_of(pending_, [&](const Pending& each) { return each.key == key; });
  }
  std::uint64_t bytes_of(const SessionKey& key) const {
    std::uint64_t bytes = 0;
    for (const SessionPart part : {SessionPart::tokens, SessionPart::contents}) {
      std::error_code none;
      const auto size = fs::file_size(
          fs::path(sessions_->directory()) / session_folder_name(key.tenant) / session_file_name(key.name, part), none);
      if (!none) bytes += size;
    }
    return bytes;
  }

  // Whether the index has the session now, and it is not in use; it changes nothing but the time of the last use.
  bool is_resting(const SessionKey& key) {
    const scheduler::Tenant& tenant = key.tenant == kAlice.id ? kAlice : kBob;
    auto begun = (*sessions_)->begin(tenant, key.name, false);
    if (!std::holds_alternative<std::shared_ptr<SessionTurn>>(begun)) return false;
    const auto turn = std::get<std::shared_ptr<SessionTurn>>(begun);
    const bool exists = !turn->is_new();
    (*sessions_)->wrap(turn, std::make_shared<Ended>())->end({});
    return exists;
  }

  // A session that the server has, as far as its clients know, is on disk, with their tokens.
  void check_one(const SessionKey& key, const std::map<SessionKey, Tokens>& disk, const Tokens& tokens) {
    if (!is_resting(key)) return;  // in use, or evicted
    INFO(describe(key));
    REQUIRE(disk.contains(key));
    for (const Pending& each : pending_)
      if (each.key == key && disk.at(key) == each.tokens) return;
    CHECK(disk.at(key) == tokens);
  }

  void fork(const scheduler::Tenant& tenant, const std::string& from, const std::string& to) {
    const SessionKey source{tenant.id, from};
    Pending pending{.kind = Kind::fork, .key = {tenant.id, to}, .tokens = {}};
    if (is_pending(source)) return;  // its tokens are not known
    if (stored_.contains(source)) pending.tokens = stored_.at(source);
    pending.asked = sessions_->ask(Kind::fork, tenant, from, to);
    pending_.push_back(std::move(pending));
    take_answers();
  }

  void remove(const scheduler::Tenant& tenant, const std::string& name) {
    auto asked = sessions_->ask(Kind::remove, tenant, name);
    const SessionKey key{tenant.id, name};
    if (!asked->answer) stored_.erase(key);  // it is not refused any more: what comes next is another session
    pending_.push_back({.kind = Kind::remove, .key = key, .tokens = {}, .asked = std::move(asked)});
    take_answers();
  }

  void begin_turn(const scheduler::Tenant& tenant, const std::string& name) {
    auto begun = (*sessions_)->begin(tenant, name, false);
    if (!std::holds_alternative<std::shared_ptr<SessionTurn>>(begun)) return;
    Turn turn{.key = {tenant.id, name},
              .turn = std::get<std::shared_ptr<SessionTurn>>(begun),
              .sink = std::make_shared<Ended>(),
              .loaded = std::make_shared<std::optional<SessionTurn::Loaded>>()};
    turn.wrapped = (*sessions_)->wrap(turn.turn, turn.sink);
    turn.turn->load({.model = small_model()},
                    [loaded = turn.loaded](SessionTurn::Loaded tokens) { *loaded = std::move(tokens); });
    sessions_->posted();
    turns_.push_back(std::move(turn));
  }

  // Ends one, with an answer or cancelled without one.
  void go_on_with_turn() {
    for (Turn& turn : turns_) {
      if (turn.has_ended || !*turn.loaded) continue;
      REQUIRE(std::holds_alternative<Tokens>(**turn.loaded));
      Tokens tokens = std::get<Tokens>(**turn.loaded);
      if (!turn.turn->is_new()) {
        INFO(describe(turn.key));
        REQUIRE(tokens == stored_.at(turn.key));
      }
      turn.has_ended = true;
      if (random_() % 4 == 0) {
        End cancelled;
        cancelled.outcome = Outcome::cancelled;
        turn.wrapped->end(cancelled);
        sessions_->posted();
        return forget_ended();
      }
      const Tokens more = some_tokens(random_, 1 + random_() % 12), answer = some_tokens(random_, 1 + random_() % 12);
      tokens.insert(tokens.end(), more.begin(), more.end());
      if (tokens.size() + answer.size() > 100) tokens.resize(100 - answer.size());
      turn.turn->set_prompt(tokens);
      tokens.insert(tokens.end(), answer.begin(), answer.end());
      TokenRun run;
      run.ids = answer;
      turn.wrapped->tokens(std::move(run));
      auto saving = random_() % 3 ? turn.turn->save(tokens, static_cast<std::uint32_t>(tokens.size() - 1)) : nullptr;
      End ended;
      ended.outcome = Outcome::length;
      const bool is_early = random_() % 2 == 0;
      if (saving && is_early) SessionSaving::commit(std::exchange(saving, nullptr), {});
      turn.wrapped->end(ended);
      if (saving) SessionSaving::commit(std::move(saving), {});
      sessions_->posted();
      pending_.push_back({.kind = Kind::list, .key = turn.key, .tokens = tokens, .turn_end = turn.sink});
      return forget_ended();
    }
  }

  void forget_ended() {
    std::erase_if(turns_, [](const Turn& turn) { return turn.has_ended; });
  }

  // In the order in which they were decided: those of one session are answered in that order.
  void take_answers() {
    for (auto it = pending_.begin(); it != pending_.end();) {
      const bool is_turn = it->turn_end != nullptr;
      if (is_turn ? !it->turn_end->end_.has_value() : !it->asked->answer.has_value()) {
        ++it;
        continue;
      }
      const bool is_ok = is_turn ? it->turn_end->end_->message.empty() : it->asked->is_ok();
      if (it->kind == Kind::remove) {
        if (is_ok) deleted_.insert(it->key);
      } else if (is_ok) {
        stored_[it->key] = it->tokens;
        deleted_.erase(it->key);
      }
      it = pending_.erase(it);
    }
  }

  std::mt19937 random_;
  const TempFolder& folder_;
  config::SessionLimits limits_;
  std::optional<Stepped> sessions_;
  std::map<SessionKey, Tokens> stored_;  // of the sessions that clients were told of; some may be evicted
  std::set<SessionKey> deleted_;
  std::deque<Pending> pending_;
  std::deque<Turn> turns_;
  int num_kills_ = 0;
};

TEST_CASE("at random: save, fork, delete, evict, turn and kill over two late threads, and what was answered stays") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    const TempFolder folder;
    Model model(seed, folder);
    std::mt19937 random(seed);
    for (int i = 0; i < 120; ++i) {
      model.act();
      if (random() % 8 == 0) model.check_killed();
      if (random() % 60 == 0) model.kill();
    }
    model.check_quiet();
  }
}

}  // namespace
}  // namespace troupe::actors
